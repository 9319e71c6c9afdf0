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


def arrows(module, *, everywhere=False):
    """What a module needs: what it imports and the packages this runs on the way, its own apart."""
    tree = ast.parse(MODULES[module].read_text())
    if everywhere:
        statements = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    else:
        statements = at_module_level(tree.body)
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


def belongs(module, part):
    return module == f"lwa.{part}" or module.startswith(f"lwa.{part}.")


# Each part and all that it may import, wherever in a module the import stands. Its own modules go without saying.
MAY_IMPORT = {
    "errors": [],
    "executors": ["errors"],
    "decision": [],
    "compiled": [],
    "programs": [],
    "randomness": ["errors"],
    "budget": ["errors"],
    "stopwatch": [],
    "user_cache": [],
    "progress": ["stopwatch"],
    "run_folder": ["errors"],
    "retention": ["settings"],
    "result": ["errors", "run_folder", "diagnostics", "progress", "report"],
    "report": ["diagnostics", "errors", "result"],
    "diagnostics": ["errors", "executors", "layout", "memory", "models", "programs", "progress", "rows"],
    "layout": ["errors", "executors", "models", "rows", "target"],
    "memory": ["layout", "models", "rows"],
    "rows": ["errors", "executors", "progress", "user_cache"],
    "reference": ["errors", "models", "randomness", "rows"],
    "summaries": ["compiled", "errors", "models", "reference", "rows"],
    "models": ["errors", "executors", "progress", "rows"],
    "target": ["errors", "models", "rows"],
    "calibration": ["models", "programs", "reference", "rows", "summaries", "target"],
    "parameters": ["errors", "decision", "models", "reference", "target"],
    "problems": ["demo", "errors", "models", "rivals"],
    "rivals": [
        "blocks",
        "budget",
        "decision",
        "errors",
        "layout",
        "memory",
        "models",
        "parameters",
        "progress",
        "randomness",
        "reference",
        "result",
        "rows",
        "settings",
        "starts",
    ],
    "checkpoints": [
        "algorithm",
        "blocks",
        "budget",
        "conclusion",
        "diagnostics",
        "errors",
        "exact",
        "models",
        "parameters",
        "pipeline",
        "recording",
        "reference",
        "result",
        "retention",
        "rows",
        "run_folder",
        "segments",
        "subsets",
        "summaries",
    ],
    "comparison": [
        "budget",
        "diagnostics",
        "errors",
        "layout",
        "models",
        "problems",
        "progress",
        "randomness",
        "reference",
        "result",
        "rivals",
        "sampling",
        "settings",
        "starts",
    ],
}


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_arrows_point_one_way(part):
    own = [module for module in MODULES if belongs(module, part)]
    assert own, f"there is no lwa.{part}"
    allowed = [part, *MAY_IMPORT[part]]
    for module in own:
        strays = [
            target for target in arrows(module, everywhere=True) if not any(belongs(target, to) for to in allowed)
        ]
        assert not strays, f"{module} imports {strays}"


@pytest.mark.parametrize("part", ["rows", "summaries", "models", "parameters", "target"])
def test_the_parts_know_nothing_of_the_whole(part):
    whole = ["algorithm", "pipeline", "blocks", "sampling", "subsets", "settings", "cli"]
    for module in MODULES:
        if belongs(module, part):
            assert not [target for target in GRAPH[module] if any(belongs(target, to) for to in whole)]


def test_moves_and_weights_know_nothing_of_theta():
    own = {"lwa.subsets", "lwa.subsets.moves", "lwa.subsets.weights"}
    for module in own:
        assert GRAPH[module] <= own | {"lwa.errors", "lwa.user", "lwa.user.validate"}


def test_a_stray_arrow_would_be_seen():
    """The reader of imports is itself right about what it reads."""
    assert "lwa.rows" in GRAPH["lwa.summaries.counts"]
    assert "lwa.subsets.chain" in GRAPH["lwa.engine.cohort"]
    assert "lwa.kernels.kernel" in GRAPH["lwa.algorithm"]
    assert "lwa.run.sample" in arrows("lwa.cli.demo", everywhere=True) - GRAPH["lwa.cli.demo"]
