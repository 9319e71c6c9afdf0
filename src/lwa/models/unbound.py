"""Models that need to see the data before they are models: levels of factors, scales of priors."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

from lwa.errors import InputError
from lwa.executors import Executor
from lwa.models.model import Model
from lwa.rows import Rows
from lwa.user.progress import Display


class Bound(Protocol):
    """A model and the rows that it is a model of."""

    @property
    def model(self) -> Model:
        """Of `rows`."""

    @property
    def rows(self) -> Rows:
        """The data as the model reads them."""

    @property
    def described(self) -> str:
        """What was chosen on seeing the data, in words."""


class Unbound(ABC):
    """What `lwa.sample` and the other verbs bind to data, in `layout.lay_out`, before they begin."""

    ordered: ClassVar[bool] = False

    @abstractmethod
    def bind(self, data: Any, progress: bool | Display = False, executor: Executor | None = None) -> Bound:
        """The model of these data; `progress` shows how a table on disk is converted, `executor` computes passes."""


def require_model(model: object) -> None:
    """Refuse what is no model, nor becomes one."""
    if not isinstance(model, Model | Unbound):
        raise InputError(
            f"model is of type {type(model).__name__}. Pass a lwa.Model(log_likelihood, log_prior, init), or "
            "lwa.glm('y ~ x')."
        )
