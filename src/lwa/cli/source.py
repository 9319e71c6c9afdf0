"""The model and the data of a command: a formula with its options or a NumPyro model, and a table."""

import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import cast

from lwa.errors import InputError
from lwa.executors import Executor
from lwa.models.glm import Glm, glm
from lwa.models.model import Model
from lwa.rows import Rows
from lwa.rows.store.cache import open_path
from lwa.rows.store.levels import require_one_kind
from lwa.rows.store.store import StoreRows
from lwa.rows.workers.on_workers import RowsOnWorkers
from lwa.user.progress import Display

PRIOR = re.compile(r"\s*(?P<of>.+?)\s*=\s*(?P<kind>[a-z_]+)\s*(?:\((?P<numbers>[^()]*)\))?\s*")
"""`x = normal(0, 1)`"""


@dataclass(frozen=True)
class Source:
    """What a command says about its model and its data: only text, so that the folder of a run can hold it."""

    what: str  # the formula; with --numpyro the data
    data: str | None
    family: str | None = None
    link: str | None = None
    prior: Sequence[str] = ()
    offset: str | None = None
    weights: str | None = None
    trials: str | None = None
    numpyro: str | None = None
    missing: str = "error"

    def read(self, *, progress: bool | Display, executor: Executor | None = None) -> tuple[Model | Glm, Rows]:
        """Return the model and the rows that it needs; the workers of an executor read Parquet files themselves."""
        self.require_one_model()
        rows = open_path(self.table, progress, columns=self.find_columns(), missing=self.missing, executor=executor)
        if self.numpyro is not None and isinstance(rows, StoreRows | RowsOnWorkers):
            for column, levels in rows.levels.items():
                require_one_kind(column, levels)  # a NumPyro model receives the codes of the levels
        return self.build_model(rows), rows

    def require_one_model(self) -> None:
        """Raise if there is no data, or if a formula or an option of one came with --numpyro."""
        if self.numpyro is None:
            if self.data is None:
                raise InputError(
                    f"{self.what!r} came alone. Pass a formula and the data, such as: lwa fit 'y ~ x' table.parquet."
                )
            return
        if self.data is not None:
            raise InputError(
                f"{self.what!r} and {self.data!r} came with --numpyro, which replaces the formula. Pass the data alone."
            )
        for name in ("family", "link", "prior", "offset", "weights", "trials"):
            if getattr(self, name):
                raise InputError(
                    f"--{name} belongs to a formula, and --numpyro replaces the formula. Write it into the model."
                )

    @property
    def table(self) -> str:
        """Where the data are."""
        return self.data or self.what

    def find_columns(self) -> Sequence[str] | None:
        """Return the columns that the model requires; None if it may take any."""
        if self.numpyro is None:
            return self.regression.names
        if not callable(self.function):
            return None  # from_numpyro raises, and says why
        parameters = inspect.signature(self.function).parameters.values()
        needed = [one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
        return needed if needed and len(needed) == len(parameters) else None

    def build_model(self, rows: Rows) -> Model | Glm:
        """Return the model; a NumPyro model is bound to these rows."""
        if self.numpyro is None:
            return self.regression
        from lwa.models.from_numpyro import from_numpyro  # NumPyro imports slowly, and a formula does not need it

        return from_numpyro(self.function, rows)

    @cached_property
    def regression(self) -> Glm:
        """The model that the formula describes."""
        trials = int(self.trials) if self.trials is not None and self.trials.isdigit() else self.trials
        return glm(
            self.what, self.family or "gaussian", link=self.link, priors=parse_priors(list(self.prior)),
            offset=self.offset, weights=self.weights, trials=trials,
        )  # fmt: skip

    @cached_property
    def function(self) -> Callable[..., object]:
        """The NumPyro model, as its user wrote it."""
        assert self.numpyro is not None
        return cast(Callable[..., object], load_object(self.numpyro))


def parse_priors(texts: list[str]) -> str | dict[str, tuple[str | float, ...]]:
    """Return `["x = normal(0, 1)", "sigma = exponential(2)"]` as `lwa.glm` takes it; `["flat"]` means no priors."""
    if texts in ([], ["auto"]):
        return "auto"
    if texts == ["flat"]:
        return "flat"
    found = dict(map(parse_prior, texts))
    if len(found) < len(texts):
        raise InputError(f"Of {texts!r}, two are priors of the same parameter. Pass one for each.")
    return found


def parse_prior(text: str) -> tuple[str, tuple[str | float, ...]]:
    """Return the name of the parameter, and its prior."""
    found = PRIOR.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        numbers = [float(number) for number in (found["numbers"] or "").split(",") if number.strip()]
    except ValueError:
        raise InputError(f"prior {text!r} is not understood. Pass 'x = normal(0, 1)', for example, or flat.") from None
    return found["of"], (found["kind"], *numbers)


def load_object(name: str) -> object:
    """Import an object that the command line names as `module:name`, from the current folder first."""
    module, _, attribute = name.partition(":")
    if not (module and attribute) or "/" in module:
        raise InputError(
            f"{name!r} is no module:name. Pass models:mine for the object mine in models.py of this folder."
        )
    sys.path.insert(0, os.getcwd())
    try:
        found: object = getattr(import_module(module), attribute)
        return found
    except (ImportError, AttributeError) as error:
        raise InputError(f"{name!r} cannot be loaded: {error}. Pass module:name of a module in this folder.") from None
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{name!r} cannot be loaded: {type(error).__name__} while {module!r} was imported: {error}. Correct the "
            "module first."
        ) from error
    finally:
        sys.path.remove(os.getcwd())
