"""lwa: Bayesian inference on tall data at a fixed cost per step."""

from importlib import import_module

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "DataError",
    "ExecutorError",
    "InputError",
    "LwaError",
    "LwaWarning",
    "Model",
    "ModelError",
    "Result",
    "RowReads",
    "Rows",
    "RunFolderError",
    "arma",
    "certify",
    "compare",
    "executors",
    "from_numpyro",
    "from_pymc",
    "glm",
    "kernels",
    "load",
    "models",
    "resume",
    "rivals",
    "sample",
    "subsets",
    "summaries",
    "targets",
]

_HOME = {
    "Certificate": "lwa.diagnostics.certificate",
    "Model": "lwa.models.model",
    "Result": "lwa.result.result",
    "RowReads": "lwa.run.budget",
    "Rows": "lwa.rows.protocol",
    "arma": "lwa.models.arma",
    "certify": "lwa.diagnostics.certify",
    "compare": "lwa.rivals.comparison.compare",
    "from_numpyro": "lwa.models.from_numpyro",
    "from_pymc": "lwa.models.from_pymc",
    "glm": "lwa.models.glm",
    "load": "lwa.result.result",
    "resume": "lwa.run.sample",
    "sample": "lwa.run.sample",
} | dict.fromkeys(
    ("DataError", "ExecutorError", "InputError", "LwaError", "LwaWarning", "ModelError", "RunFolderError"), "lwa.errors"
)


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: `import lwa` itself loads nothing heavy."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in __all__:
        return import_module(f"lwa.{name}")
    raise AttributeError(f"module 'lwa' has no attribute {name!r}. Public names: {', '.join(__all__)}.")


def __dir__() -> list[str]:
    return __all__
