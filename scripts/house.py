"""Count what makes the package easy or hard to enter, and name what is over the limit.

    python scripts/house.py                 # the table; exit code 1 if a limit is exceeded
    python scripts/house.py --list any      # where each count comes from: any, body, args, twice, imports, root
    python scripts/house.py src/lwa/rows    # only files below a path

| count | what is counted |
|---|---|
| root | modules in the package root |
| lines | lines of all source files |
| body | lines of the longest function body, docstring apart |
| args | positional arguments of the call that passes most |
| twice | top-level names (functions, classes, constants) defined in more than one module |
| any | `: Any` in signatures and fields |
| imports | modules of the package that one module imports, at the most |
"""

import argparse
import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "lwa"
LIMITS = {"root": 5, "lines": 34_000, "body": 60, "args": 5, "twice": 39, "any": 199, "imports": 15}
EXCEPTIONS: dict[str, str] = {}
"""Functions whose body may be longer, by module and name, with the reason."""


def module_of(file: Path) -> str:
    """The dotted name of a source file."""
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's body without its docstring."""
    first = node.body[0]
    docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    body = node.body[1:] if docstring else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def imported(tree: ast.AST, modules: set[str]) -> set[str]:
    """The modules of the package that a module imports anywhere in its text."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "lwa"}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lwa":
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in inner}
    return found


def top_level_names(tree: ast.Module) -> set[str]:
    """Functions, classes and constants that a module defines."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                found |= {leaf.id for leaf in ast.walk(target) if isinstance(leaf, ast.Name)}
        elif isinstance(node, ast.TypeAlias):
            found.add(node.name.id)
    return {name for name in found if not (name.startswith("__") or name == "_")}


def count(files: list[Path]) -> dict[str, list[tuple[int, str]]]:
    """For each count the places it comes from, largest first."""
    modules = {module_of(file) for file in SOURCE.rglob("*.py")}
    places: dict[str, list[tuple[int, str]]] = defaultdict(list)
    defined = defaultdict(list)
    for file in files:
        text, name = file.read_text(), module_of(file)
        tree = ast.parse(text)
        places["lines"].append((text.count("\n"), name))
        if file.parent == SOURCE:
            places["root"].append((1, name))
        places["imports"].append((len(imported(tree, modules) - {name, "lwa"}), name))
        for top in top_level_names(tree):
            defined[top].append(name)
        for number, line in enumerate(text.splitlines(), 1):
            if found := len(re.findall(r": Any\b", line)):
                places["any"].append((found, f"{name}:{number}"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and f"{name}:{node.name}" not in EXCEPTIONS:
                places["body"].append((body_lines(node), f"{name}:{node.name}"))
            if isinstance(node, ast.Call) and not any(isinstance(one, ast.Starred) for one in node.args):
                places["args"].append((len(node.args), f"{name}:{node.lineno}"))
    places["twice"] = [(len(where), f"{top}: {', '.join(where)}") for top, where in defined.items() if len(where) > 1]
    return {key: sorted(found, reverse=True) for key, found in places.items()}


def total(key: str, found: list[tuple[int, str]]) -> int:
    """The figure of one count."""
    if key == "twice":
        return len(found)
    figures = [figure for figure, _ in found]
    return sum(figures) if key in ("root", "lines", "any") else max(figures, default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, default=[SOURCE])
    parser.add_argument("--list", choices=LIMITS, help="show where a count comes from")
    given = parser.parse_args()
    files = [
        file for path in given.paths for file in (path.resolve().rglob("*.py") if path.is_dir() else [path.resolve()])
    ]
    places, over = count(files), []
    for key, limit in LIMITS.items():
        found = places.get(key, [])
        figure = total(key, found)
        over += [key] if figure > limit else []
        print(f"{key:8} {figure:6}   limit {limit:6}{'   over' if figure > limit else ''}")
        if given.list == key:
            least = limit if key in ("body", "args", "imports") else 0
            print("\n".join(f"    {number:5} {where}" for number, where in found if number > least))
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
