"""Draws, whoever made them, as one array; which of them to score; and how far they spread."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics.running import MANY
from lwa.errors import InputError
from lwa.models.check import labelled
from lwa.models.model import Model
from lwa.models.supports import Support

POINTS, POINTS_A_PARAMETER = 300, 8
"""Each half of the points fits a line in d parameters: 8 a parameter leaves it four times as many as it needs."""
FEWEST_DRAWS = 100


def draws_of(model: Model, idata: Any) -> NDArray[np.float64]:
    """The draws as `(chains, draws, d)` of the model's flat vector: unconstrained, in its order.

    A run that kept them so is taken at its word where this model maps them to the run's own parameters.
    """
    posterior = getattr(idata, "posterior", idata)
    try:
        present = [str(name) for name in posterior]
    except TypeError:
        present = []
    if not present or isinstance(posterior, str) or not isinstance(posterior, Mapping):
        raise InputError(
            f"idata is of type {type(idata).__name__} and holds no draws. Pass a lwa.Result, an xarray.DataTree with a "
            "group 'posterior', or a dict of arrays (chain, draw, *shape) by parameter."
        )
    require_labels(model, getattr(posterior, "coords", getattr(idata, "coords", None)))
    parts = []
    for name, shape in model.shapes.items():
        if name not in present:
            raise InputError(
                f"idata has no draws of {name!r}; it has {', '.join(map(repr, present))}. The model's parameters are "
                f"{', '.join(map(repr, model.shapes))}. Pass draws of all of them, under these names."
            )
        values = np.asarray(posterior[name])
        if values.ndim != len(shape) + 2 or values.shape[2:] != shape:
            expected = ", ".join(["chains", "draws", *map(str, shape)])
            raise InputError(
                f"idata[{name!r}] has shape {values.shape}; ({expected}) is expected. For a single chain pass "
                "values[None]."
            )
        if not (np.issubdtype(values.dtype, np.number) and np.isrealobj(values)):
            raise InputError(f"idata[{name!r}] holds {values.dtype} values; real numbers are expected.")
        if not np.isfinite(values).all():
            raise InputError(
                f"idata[{name!r}] holds {(~np.isfinite(values)).sum()} values that are NaN or infinite. Draws are "
                "finite: pass the chains without them."
            )
        parts.append(values)
    sizes = {name: part.shape[:2] for name, part in zip(model.shapes, parts, strict=True)}
    if len(set(sizes.values())) > 1:
        raise InputError(f"idata holds different numbers of chains and draws: {sizes}. Pass draws made together.")
    kept = moved(model, getattr(idata, "unconstrained", None), parts)
    if kept is not None:
        return kept
    free = [mapped(name, support, part) for (name, support), part in zip(model.supports.items(), parts, strict=True)]
    return np.concatenate(free, axis=-1)


def require_labels(model: Model, coords: Any) -> None:
    """Refuse draws whose axes are labelled otherwise than the model's: they are of other columns or levels."""
    for axis, labels in (model.coords or {}).items():
        if coords is None or axis not in coords:
            continue
        theirs, ours = list(map(str, np.asarray(coords[axis]))), list(map(str, labels))
        if theirs != ours:
            apart = [label for label in (*theirs, *ours) if (label in theirs) != (label in ours)] or theirs
            raise InputError(
                f"The draws and the model of these data have not the same labels of {axis!r}: {apart[0]!r} is in one "
                "of them alone, or in another place. Pass the data that the draws were made with, or ones with their "
                "levels."
            )


def mapped(name: str, support: Support, values: NDArray[Any]) -> NDArray[np.float64]:
    """A parameter's draws as the flat vector holds them; refuses those outside its support."""
    free, inside = support.free(values)
    if not inside.all():
        raise InputError(
            f"{(~inside).sum()} of {inside.size} draws of {name!r} in idata lie outside its support: {support.words}, "
            f"boundaries excluded. The first is {values[~inside][0].tolist()}. Pass draws of {name!r} as log_prior "
            "takes it, not of its logarithm, for example, or the model that they were drawn with."
        )
    return free


def moved(model: Model, kept: Any, parts: list[NDArray[Any]]) -> NDArray[np.float64] | None:
    """The unconstrained draws that a run kept, if it did, and if this model maps them to the draws at hand."""
    if not isinstance(kept, Mapping) or list(kept) != list(model.supports):
        return None
    free = [np.asarray(values) for values in kept.values()]
    expected = [(*part.shape[:2], model.supports[name].size) for name, part in zip(kept, parts, strict=True)]
    if [values.shape for values in free] != expected:
        return None
    together = np.concatenate(free, axis=-1)
    images = model.by_name(together).values()
    same = [
        np.allclose(part, image, rtol=0, atol=1e-9 * np.abs(image).max())
        for part, image in zip(parts, images, strict=True)
    ]
    return together if all(same) else None


def at_least_two_chains(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """A single chain as its two halves: what one half finds is measured on the other.

    Of many chains that are too short for an autocorrelation the last draw each, as two chains: these are independent.
    """
    chains, length, d = draws.shape
    enough = max(FEWEST_DRAWS, POINTS_A_PARAMETER * d)
    if length < 8 and chains > MANY and chains >= enough:
        return draws[: chains // 2 * 2, -1].reshape(2, chains // 2, d)
    if chains * length < enough or length < 8:
        raise InputError(
            f"idata holds {chains} x {length} draws, too few to be judged. Pass at least {enough} in all, and 8 a "
            "chain; independent draws may be passed as one chain."
        )
    return draws if chains > 1 else draws[:, : length // 2 * 2].reshape(2, length // 2, d)


def spread_evenly(draws: NDArray[np.float64], points: int | None) -> NDArray[np.int64]:
    """Where to take gradients, as positions among all draws, chain after chain."""
    chains, length, d = draws.shape
    fewest = POINTS_A_PARAMETER * d
    if points is not None and (isinstance(points, bool) or not isinstance(points, int) or points < max(fewest, 20)):
        raise InputError(
            f"points={points!r} will not do. Pass a whole number of at least {max(fewest, 20)}, or leave it out."
        )
    count = max(POINTS, fewest) if points is None else points
    return np.linspace(0, chains * length - 1, min(count, chains * length)).round().astype(np.int64)


def spread(model: Model, draws: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean of all draws and a factor F of their covariance F Fᵀ; refuses draws that do not vary in some direction."""
    flat = draws.reshape(-1, draws.shape[-1])
    mean, sd = flat.mean(0), flat.std(0)
    still = [
        name for name, moved in zip(labelled(model), sd > 1e-12 * (1e-300 + np.abs(mean)), strict=True) if not moved
    ]
    if still:
        raise InputError(f"All draws of {', '.join(still)} are the same. Pass draws of every parameter that vary.")
    correlation = np.corrcoef(flat, rowvar=False).reshape(len(mean), len(mean))
    bend, axes = np.linalg.eigh(correlation)
    if bend[0] < 1e-10:
        names = [name for name, used in zip(labelled(model), np.abs(axes[:, 0]), strict=True) if used > 0.1]
        raise InputError(
            f"The draws of {', '.join(names)} lie on a plane: each is a function of the others. Pass draws of all "
            "parameters that vary freely."
        )
    return mean, sd[:, None] * np.linalg.cholesky(correlation)
