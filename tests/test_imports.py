"""What `import lwa` costs, and which way the arrows between modules point."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import lwa

SOURCE = Path(lwa.__file__).parent
OPTIONAL = [
    "arviz",
    "blackjax",
    "cloudpickle",
    "distributed",
    "fsspec",
    "h5netcdf",
    "jax",
    "matplotlib",
    "numba",
    "numpy",
    "numpyro",
    "pandas",
    "polars",
    "pyarrow",
    "pymc",
    "pytensor",
    "rich",
    "scipy",
    "typer",
    "xarray",
]
ADAPTERS = [
    "arviz",
    "blackjax",
    "distributed",
    "fsspec",
    "h5netcdf",
    "matplotlib",
    "numba",
    "numpyro",
    "pandas",
    "polars",
    "pyarrow",
    "pymc",
    "pytensor",
    "scipy",
    "xarray",
]


def loaded_by(statement, names):
    code = f"import sys\n{statement}\nprint(*[name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


def test_import_lwa_loads_nothing():
    assert loaded_by("import lwa", OPTIONAL) == []


def test_the_command_line_loads_no_jax():
    assert loaded_by("import lwa.cli.app", ["jax", "numpy", *ADAPTERS]) == []


def test_sample_loads_no_library_that_it_may_not_need():
    # JAX itself imports parts of SciPy.
    optional = [name for name in ADAPTERS if name != "scipy"]
    assert loaded_by("from lwa import sample, load, Model", optional) == []


def test_numpyro_is_loaded_by_constraints_alone():
    model = "import lwa\nlwa.Model(lambda theta, y: y, lambda theta: 0.0, {'s': 1.0}"
    assert loaded_by(f"{model})", ["numpyro"]) == []
    assert loaded_by(f"{model}, constraints={{'s': 'real'}})", ["numpyro"]) == []
    assert loaded_by(f"{model}, constraints={{'s': 'positive'}})", ["numpyro"]) == ["numpyro"]


@pytest.mark.parametrize("name", lwa.__all__)
def test_public_names_resolve(name):
    assert getattr(lwa, name) is not None
    assert name in dir(lwa)


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match=r"has no attribute 'smaple'\. Public names: .*sample"):
        lwa.smaple  # noqa: B018


@pytest.mark.parametrize(
    "package", ["rivals.comparison", "models", "kernels", "rivals", "rows", "subsets", "summaries"]
)
def test_public_names_of_the_packages_resolve(package):
    module = import_module(f"lwa.{package}")
    assert all(hasattr(module, name) for name in module.__all__)


# Arrows


def name_of(file):
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(file): file for file in sorted(SOURCE.rglob("*.py"))}


def at_module_level(nodes):
    """Import statements that run when the module is imported."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from at_module_level([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from at_module_level([*node.body, *node.handlers, *node.orelse, *node.finalbody])


def imported(statements):
    """The lwa modules that import statements name; `from package import module` names the module."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "lwa")
        elif node.level:
            raise AssertionError(f"a relative import: {ast.unparse(node)}")
        elif node.module.split(".")[0] == "lwa":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def ancestors(module):
    parts = module.split(".")
    return {".".join(parts[:i]) for i in range(1, len(parts))}


def every_import(module):
    """Import statements anywhere in a module."""
    tree = ast.parse(MODULES[module].read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def arrows(module, *, everywhere=False):
    """What a module needs: what it imports and the packages this runs on the way, its own apart."""
    statements = every_import(module) if everywhere else at_module_level(ast.parse(MODULES[module].read_text()).body)
    targets = set(imported(statements))
    return (targets | set().union(*map(ancestors, targets))) - ancestors(module) - {module, "lwa"}


GRAPH = {module: arrows(module) for module in MODULES}


def test_every_arrow_ends_at_a_module():
    assert set().union(*GRAPH.values()) <= set(MODULES)


def test_there_is_no_cycle():
    try:
        TopologicalSorter(GRAPH).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


MAY_IMPORT = {
    "errors": "",
    "user": "errors",
    "backend": "user",
    "storage": "errors user",
    "executors": "errors",
    "rows": "errors user storage executors",
    "models": "errors user executors rows",
    "data": "errors user backend executors rows models",
    "targets": "errors user backend rows models",
    "summaries": "errors user backend rows models targets",
    "kernels": "errors user models targets",
    "algorithm": "backend rows targets kernels",
    "subsets": "errors user backend rows models targets summaries kernels algorithm",
    "diagnostics": "errors user backend executors rows models data targets subsets",
    "engine": "errors backend executors rows models data diagnostics targets kernels algorithm subsets",
    "result": "errors user backend storage executors models data diagnostics kernels engine",
    "run": "errors user backend storage executors rows models data diagnostics targets summaries kernels algorithm "
    "subsets engine result",
    "rivals": "errors user backend rows models data diagnostics targets kernels result run",
    "cli": "errors user backend storage executors rows models data diagnostics targets subsets engine result run "
    "rivals",
    "__main__": "cli",
}
"""Each folder, or module of the package root, and all that it may import, wherever in a module the import stands: at
its top, in a function, or behind TYPE_CHECKING. A folder's own modules go without saying. Folders stand in order: none
imports a later one, so there is no cycle between them."""
MOST_IMPORTS = 15


def part_of(module):
    """The folder of a module, or itself in the package root."""
    return module.split(".")[1]


def test_every_folder_is_named():
    assert {part_of(module) for module in MODULES if module != "lwa"} == set(MAY_IMPORT)
    assert len([file for file in SOURCE.glob("*.py")]) <= 5


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_arrows_point_one_way(part):
    allowed, before = MAY_IMPORT[part].split(), list(MAY_IMPORT)[: list(MAY_IMPORT).index(part)]
    assert set(allowed) <= set(before), "a folder may import earlier ones only"
    for module in MODULES:
        if module != "lwa" and part_of(module) == part:
            strays = [name for name in arrows(module, everywhere=True) if part_of(name) not in (part, *allowed)]
            assert not strays, f"{module} imports {strays}"
            assert "lwa" not in set(imported(every_import(module))), f"{module} imports the package itself"


def test_what_may_be_imported_is():
    """The table says no more than there is."""
    for part, allowed in MAY_IMPORT.items():
        own = [module for module in MODULES if module != "lwa" and part_of(module) == part]
        there = {part_of(name) for module in own for name in arrows(module, everywhere=True)} - {part}
        assert there == set(allowed.split()), part


def test_no_module_imports_more_than_fifteen_others():
    counts = {module: len(set(imported(every_import(module))) - {module, "lwa"}) for module in MODULES}
    assert {module: count for module, count in counts.items() if count > MOST_IMPORTS} == {}


def test_moves_and_weights_know_nothing_of_theta():
    known = {"lwa.errors", "lwa.user", "lwa.user.validate", "lwa.subsets", "lwa.subsets.moves", "lwa.subsets.weights"}
    for module in ("lwa.subsets", "lwa.subsets.moves", "lwa.subsets.weights"):
        assert GRAPH[module] <= known


def test_a_stray_arrow_would_be_seen():
    """The reader of imports is itself right about what it reads."""
    assert "lwa.rows" in GRAPH["lwa.summaries.counts"]
    assert "lwa.subsets.tape" in GRAPH["lwa.engine.cohort"]
    assert "lwa.kernels.kernel" in GRAPH["lwa.algorithm"]
    assert "lwa.engine.device.cohort" in arrows("lwa.engine.problem", everywhere=True) - GRAPH["lwa.engine.problem"]
    assert "lwa.run.sample" in arrows("lwa.cli.fitting", everywhere=True)
