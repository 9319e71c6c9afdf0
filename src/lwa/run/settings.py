"""What a user asked for, checked, before any data is read."""

import os
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lwa.backend.random import as_seed
from lwa.errors import InputError, one_of
from lwa.kernels import Kernel
from lwa.run.budget import Budget, as_budget
from lwa.subsets.bandwidth import as_epsilon
from lwa.subsets.moves import Move, Swap, Window, as_move
from lwa.subsets.weights import Weight, as_weight
from lwa.summaries import Summary, as_summary
from lwa.targets.target import NAMES

KEPT_BYTES = 2**26
"""What draws may take that `draws="auto"` keeps, in float64: 200,000 a chain of four with ten parameters."""
NO_END = 2**62
"""Draws that are asked for where as many are to be kept as the budget allows."""
PRECISIONS = ["auto", "float32", "float64"]
KEEPING = ["auto", "all", "summary"]


@dataclass(frozen=True)
class Settings:
    """The arguments of `lwa.sample`, each of its right kind."""

    subset_size: int | None  # None: to be found
    target: str
    exact: bool
    summary: Summary | None  # None: to be chosen, for the calibrated target
    epsilon: float | None  # None: to be found
    draws: int
    filling: bool  # as many moves as the budget allows, of which so many draws are kept
    tune: int
    chains: int
    thinning: int | None  # None: to be found
    seed: int
    budget: Budget
    subset_move: Move | None  # None: to be chosen, for the calibrated target
    subset_weight: Weight
    kernel: Kernel | None  # None: to be chosen, once d is known
    refresh_steps: int
    leverage: bool | str
    transport: bool | str
    tolerance: float
    reference: Any
    precision: str
    keep_tune: bool
    keep: str
    checkpoint: Path | None

    @classmethod
    def check(cls, **given: Any) -> "Settings":
        """Refuse what cannot be meant."""
        calibrated = as_text(given["target"]) in ("calibrated", "auto")
        ordered = given["ordered"]
        move = as_move(given["subset_move"], ordered=ordered)
        if move is None and not calibrated:
            move = Window() if ordered else Swap(1)
        for option, valid in (("target", [*NAMES, "auto"]), ("precision", PRECISIONS), ("keep", KEEPING)):
            if not (isinstance(given[option], str) and given[option] in valid):
                raise one_of(option, given[option], valid)
        if as_text(given["subset_size"]) == "auto" and not calibrated:
            raise InputError(
                f"subset_size='auto' needs a target that can tell how far off it is, not target={given['target']!r}. "
                "Pass target='calibrated', or subset_size=1000, for example."
            )
        draws = auto_or_whole("draws", given["draws"], example=1000)
        if draws is None and given["budget"] is None:
            raise InputError("draws='auto' needs a budget. Pass budget='60 s' with it, or draws=1000.")
        if ordered and given["leverage"] is True:
            raise InputError(
                "leverage=True draws single rows by their share of the curvature, but these are ordered, and U is a "
                "window of them. Leave it out."
            )
        if given["reference"] is not None and not calibrated:
            raise InputError(
                f"target={given['target']!r} uses no reference. Pass target='calibrated', or leave it out."
            )
        return cls(
            subset_size=auto_or_whole("subset_size", given["subset_size"], example=1000),
            target=given["target"],
            exact=yes_or_no("exact", given["exact"]),
            summary=as_summary(
                given["summary"], weighted=move is None or move.weighted, calibrated=calibrated, ordered=ordered
            ),
            epsilon=as_epsilon(given["epsilon"]),
            draws=draws or NO_END,
            filling=draws is None,
            tune=whole("tune", given["tune"], least=0, example=1000),
            chains=whole("chains", given["chains"], least=1, example=4),
            thinning=auto_or_whole("thinning", given["thinning"], example=1),
            seed=as_seed(given["seed"]),
            budget=as_budget(given["budget"]),
            subset_move=move,
            subset_weight=as_weight(given["subset_weight"]),
            kernel=as_kernel(given["kernel"]),
            refresh_steps=whole("refresh_steps", given["refresh_steps"], least=1, example=1),
            leverage=auto_or_not("leverage", given["leverage"]),
            transport=as_transport(given["transport"]),
            tolerance=as_tolerance(given["tolerance"]),
            reference=given["reference"],
            precision=given["precision"],
            keep_tune=yes_or_no("keep_tune", given["keep_tune"]),
            keep=given["keep"],
            checkpoint=as_folder(given["checkpoint"]),
        )

    def without_reference(self, N: int, *, ordered: bool) -> "Settings":
        """The same for the powered target, where `"auto"` falls back to it."""
        move = self.subset_move or (Window() if ordered else Swap(1))
        return replace(
            self,
            target="powered",
            subset_size=self.subset_size or min(1000, N),
            subset_move=move,
            summary=self.summary or as_summary("auto", weighted=move.weighted, ordered=ordered),
            reference=None,
        )

    def fit(self) -> None:
        """Refuse a move that exchanges more than a subset holds."""
        if self.subset_size is not None and self.subset_move is not None:
            self.subset_move.replaced(self.subset_size)

    @property
    def of_draws(self) -> str:
        """How many were asked for, after a number of those that are there."""
        return "draws" if self.filling else f"of {self.draws} draws"

    def record(self) -> dict[str, Any]:
        """As JSON; the same settings give the same record in every process."""
        told = {name: plain(value) for name, value in vars(self).items() if name not in ("filling", "checkpoint")}
        return told | ({"draws": "auto"} if self.filling else {})


def as_folder(checkpoint: object) -> Path | None:
    """Where a run is kept while it goes on, if anywhere."""
    if checkpoint is None or isinstance(checkpoint, str | os.PathLike):
        return None if checkpoint is None else Path(checkpoint)
    raise InputError(f"checkpoint={checkpoint!r} must be the path of a folder. Pass checkpoint='runs/mine', or None.")


def keepable(chains: int, dimension: int) -> int:
    """Draws a chain that `draws="auto"` aims to keep."""
    return max(1000, KEPT_BYTES // (8 * chains * dimension))


def plain(value: Any) -> Any:
    """A setting as JSON has it: numbers and names as they are, the rest in words, functions without their address."""
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if isinstance(value, int | float | str | None):
        return value
    if is_dataclass(value):
        held = ", ".join(f"{field.name}={plain(getattr(value, field.name))}" for field in fields(value) if field.repr)
        return f"{type(value).__name__}({held})"
    return getattr(value, "__qualname__", None) or repr(value)


def auto_or_whole(name: str, value: object, *, example: int) -> int | None:
    """A whole number from 1 on; None where `"auto"` leaves it to lwa."""
    return None if as_text(value) == "auto" else whole(name, value, least=1, example=example, also=" or 'auto'")


def auto_or_not(name: str, value: object) -> bool | str:
    """True, False or `"auto"`."""
    return "auto" if as_text(value) == "auto" else yes_or_no(name, value, also=" or 'auto'")


def as_transport(value: object) -> bool | str:
    """True, False, `"auto"` or `"second_order"`."""
    if as_text(value) == "second_order":
        return "second_order"
    return "auto" if as_text(value) == "auto" else yes_or_no("transport", value, also=", 'auto' or 'second_order'")


def as_tolerance(value: object) -> float:
    """A share between 0 and 1."""
    if isinstance(value, float | int | np.number) and not isinstance(value, bool) and 0.0 < value < 1.0:
        return float(value)
    raise InputError(f"tolerance={value!r} must lie between 0 and 1. Pass tolerance=0.02, for sds right to 2 %.")


def whole(name: str, value: object, *, least: int, example: int, also: str = "") -> int:
    """A whole number that is at least `least`."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least:
        return int(value)
    raise InputError(f"{name}={value!r} must be a whole number >= {least}{also}. Pass {name}={example}, for example.")


def as_text(value: object) -> str:
    """A string as it is, anything else as no option's name."""
    return value if isinstance(value, str) else ""


def yes_or_no(name: str, value: object, also: str = "") -> bool:
    """True or False, and nothing that merely looks like it."""
    if isinstance(value, bool):
        return value
    raise InputError(f"{name}={value!r} must be True or False{also}. Pass {name}=False, for example.")


def as_kernel(kernel: object) -> Kernel | None:
    """θ's kernel; None where `"auto"` leaves it to `choose_kernel`."""
    if isinstance(kernel, Kernel):
        return kernel
    if as_text(kernel) == "auto":
        return None
    names = ["RandomWalk", "Blockwise", "Autoregressive", "Independence", "MALA", "HMC", "NUTS"]
    valid = ", ".join(f"lwa.kernels.{name}(...)" for name in names)
    raise InputError(f"kernel={kernel!r} is not known. Valid: 'auto', {valid}. Pass kernel='auto', for example.")
