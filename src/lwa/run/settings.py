"""Settings: what a user asked for, checked before any data is read."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lwa.backend.random import as_seed
from lwa.errors import InputError
from lwa.kernels import Kernel
from lwa.run.budget import NO_LIMIT, Budget, RowReads, as_budget
from lwa.subsets.moves import Fixed, Move, Swap, Window, as_move
from lwa.subsets.weights import WEIGHTS, Weight
from lwa.summaries import Summary, as_summary
from lwa.targets.target import Calibrated, Powered, TargetChoice, as_target
from lwa.user.validate import is_real, require_bool, require_one_of, require_whole

KEPT_BYTES = 2**26
"""Size of the draws that `draws="auto"` keeps, in float64: 200,000 per chain for four chains and ten parameters."""
DEFAULT_SIZE = 1000
"""Rows of a subset, if the user names no number."""
WHOLE = 5000
"""With no more rows than this, the calibrated target reads all of them at each step unless told otherwise: then it is
the posterior itself."""
WHOLE_POWERED = 100_000
"""With no more rows than this, `target="auto"` reads all of them at each step if it falls back to the powered target:
then it is the posterior itself, at about a millisecond per step."""
MOST_ROWS, FEWEST_GROUPS = 100_000, 100
"""Rows up to which lwa enlarges subsets by itself: a step takes about a millisecond. Of large groups a subset has so
many rows, or so few groups, to begin with."""
PRECISIONS = ["auto", "float32", "float64"]
KEEPING = ["auto", "all", "summary"]

type TargetOption = TargetChoice | str
type SummaryOption = Summary | str
type BudgetOption = float | str | RowReads | None
type MoveOption = Move | None
type WeightOption = Weight | str
type KernelOption = Kernel | str


@dataclass(frozen=True)
class Settings:
    """The arguments of `lwa.sample`, checked and converted."""

    subset_size: int | None  # None: to be found
    grows: bool  # whether subsets may have more rows, since the user named no number
    target: TargetChoice
    falls_back: bool  # to the powered target, if the calibrated one cannot be used
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
    precision: str
    keep_tune: bool
    keep: str
    checkpoint: Path | None

    @classmethod
    def check(cls, given: Mapping[str, Any], *, ordered: bool) -> "Settings":
        """Return the settings, or raise if one is invalid."""
        target, falls_back = as_target(given["target"])
        calibrated = isinstance(target, Calibrated)
        move = as_move(given["subset_move"], ordered=ordered)
        if move is None and not calibrated:
            move = Window() if ordered else Swap(1)
        grows = given["subset_size"] is None
        size = DEFAULT_SIZE if grows else as_count("subset_size", given["subset_size"], example=DEFAULT_SIZE)
        if size is None and not calibrated:
            raise InputError(
                f"subset_size='auto' needs a target whose error can be predicted, not target={target.name!r}. "
                "Pass target='calibrated', or subset_size=1000, for example.",
                advice={"target": "calibrated"},
            )
        draws = read_draws(given["draws"], given["budget"])
        if ordered and isinstance(target, Calibrated) and target.leverage is True:
            raise InputError(
                "leverage=True draws single rows by their share of the curvature, but these are ordered, and a subset "
                "is a window of them. Leave it out."
            )
        summary = None
        if not is_auto(given["summary"]) or not (calibrated or ordered):
            weighted = move is None or move.weighted
            summary = as_summary(given["summary"], weighted=weighted, calibrated=calibrated, ordered=ordered)
        return cls(
            subset_size=size, grows=grows, target=target, falls_back=falls_back,
            exact=require_bool("exact", given["exact"]), summary=summary, epsilon=as_epsilon(given["epsilon"]),
            draws=draws or NO_LIMIT, filling=draws is None,
            tune=require_whole("tune", given["tune"], least=0, example=1000),
            chains=require_whole("chains", given["chains"], least=1, example=4),
            thinning=as_count("thinning", given["thinning"], example=1), seed=as_seed(given["seed"]),
            budget=Budget() if given["budget"] is None else as_budget(given["budget"]), subset_move=move,
            subset_weight=as_weight(given["subset_weight"]), kernel=as_kernel(given["kernel"]),
            refresh_steps=require_whole("refresh_steps", given["refresh_steps"], least=1, example=1),
            precision=require_one_of("precision", given["precision"], PRECISIONS),
            keep_tune=require_bool("keep_tune", given["keep_tune"]),
            keep=require_one_of("keep", given["keep"], KEEPING), checkpoint=as_folder(given["checkpoint"]),
        )  # fmt: skip

    def fall_back(self, N: int, *, ordered: bool) -> "Settings":
        """Return the settings of the powered target, to which `target="auto"` falls back: on all rows, unless many."""
        move = self.subset_move or (Window() if ordered else Swap(1))
        chosen = self.grows or self.subset_size is None
        size = N if chosen and not ordered and N <= WHOLE_POWERED else self.subset_size or min(DEFAULT_SIZE, N)
        return replace(
            self, target=Powered(), subset_size=size, subset_move=move,
            summary=self.summary or as_summary("auto", weighted=move.weighted, ordered=ordered),
        )  # fmt: skip

    def fit_to(self, available: int, *, ordered: bool, rows: int = 0) -> "Settings":
        """Return the settings with a default subset_size that suits so many rows, groups or steps.

        Groups have `rows` in all: fewer of them are read at a step if they are large.
        """
        if not self.grows or self.subset_size is None:
            return self
        rows = max(rows, available)
        if self.calibration is not None and not ordered and self.summary is None and rows <= WHOLE:
            return replace(self, subset_size=available)
        affordable = available if ordered else max(FEWEST_GROUPS, MOST_ROWS * available // rows)
        return replace(self, subset_size=min(self.subset_size, available, affordable))

    def hold_all(self, available: int, *, ordered: bool) -> "Settings":
        """Return the settings by which a subset of all rows stays as it is: no other row could come in."""
        if self.calibration is not None or ordered or self.subset_size != available:
            return self
        if not isinstance(self.subset_move, Swap):
            return self
        return replace(self, subset_move=Fixed(), summary=None)

    @property
    def calibration(self) -> Calibrated | None:
        """The options of the calibrated target, if that is the target."""
        return self.target if isinstance(self.target, Calibrated) else None

    def require_move_fits(self) -> None:
        """Raise if the move exchanges more rows than a subset holds."""
        if self.subset_size is not None and self.subset_move is not None:
            self.subset_move.replaced(self.subset_size)

    @property
    def of_draws(self) -> str:
        """Words that follow a number of draws: "of 1000 draws"."""
        return "draws" if self.filling else f"of {self.draws} draws"

    def record(self, subset_size: int, kernel: Kernel) -> dict[str, Any]:
        """Return all settings as JSON, with what was chosen; the same settings give the same record everywhere."""
        unrecorded = ("filling", "checkpoint", "falls_back", "grows")
        record = {name: as_plain(value) for name, value in vars(self).items() if name not in unrecorded}
        if as_plain(self.target) == as_plain(type(self.target)()):
            record["target"] = self.target.name
        record |= {"subset_size": subset_size, "kernel": as_plain(kernel)}
        return record | ({"draws": "auto"} if self.filling else {})


def as_folder(checkpoint: object) -> Path | None:
    """Return the folder of the checkpoint, if there is one."""
    if checkpoint is None or isinstance(checkpoint, str | os.PathLike):
        return None if checkpoint is None else Path(checkpoint)
    raise InputError(f"checkpoint={checkpoint!r} must be the path of a folder. Pass checkpoint='runs/mine', or None.")


def count_keepable(chains: int, dimension: int) -> int:
    """Return the draws per chain that `draws="auto"` aims to keep."""
    return max(1000, KEPT_BYTES // (8 * chains * dimension))


def as_plain(value: object) -> object:
    """Return a setting as JSON has it: numbers and names as they are, objects in words, functions by name."""
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if isinstance(value, int | float | str | None):
        return value
    if is_dataclass(value):
        held = [f"{field.name}={as_plain(getattr(value, field.name))}" for field in fields(value) if field.repr]
        return f"{type(value).__name__}({', '.join(held)})"
    return getattr(value, "__qualname__", None) or repr(value)


def is_auto(value: object) -> bool:
    """Return whether a setting is left to lwa."""
    return isinstance(value, str) and value == "auto"


def as_count(name: str, value: object, *, example: int) -> int | None:
    """Return a whole number from 1 on; None if `"auto"` leaves it to lwa."""
    if is_auto(value):
        return None
    return require_whole(name, value, least=1, example=example, also=" or 'auto'")


def read_draws(draws: object, budget: object) -> int | None:
    """Return the draws per chain; None if `"auto"` asks for as many as the budget allows."""
    count = as_count("draws", draws, example=1000)
    if count is None and budget is None:
        raise InputError(
            "draws='auto' needs a budget. Pass budget='60 s' with it, or draws=1000.", advice={"budget": "60 s"}
        )
    return count


def as_epsilon(epsilon: object) -> float | None:
    """Return a positive number, or None if `"auto"` asks for `find_epsilon`."""
    if is_auto(epsilon):
        return None
    if is_real(epsilon) and epsilon > 0:
        return float(epsilon)
    raise InputError(
        f"epsilon={epsilon!r} must be a positive number (float('inf') gives all subsets the same weight) or 'auto'. "
        "Pass epsilon='auto', for example."
    )


def as_weight(weight: object) -> Weight:
    """Return Φ, given by name or as an object."""
    return weight if isinstance(weight, Weight) else WEIGHTS[require_one_of("subset_weight", weight, list(WEIGHTS))]


def as_kernel(kernel: object) -> Kernel | None:
    """Return θ's kernel; None if `"auto"` leaves it to lwa."""
    if isinstance(kernel, Kernel):
        return kernel
    if is_auto(kernel):
        return None
    names = ["RandomWalk", "Blockwise", "Autoregressive", "Independence", "MALA", "HMC", "NUTS"]
    valid = ", ".join(f"lwa.kernels.{name}(...)" for name in names)
    raise InputError(f"kernel={kernel!r} is not known. Valid: 'auto', {valid}. Pass kernel='auto', for example.")
