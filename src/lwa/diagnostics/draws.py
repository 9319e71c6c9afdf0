"""Draws of any sampler as one array, which of them to score, and how far they spread."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import ArrayLike, NDArray

from lwa.diagnostics.running import MANY_CHAINS
from lwa.errors import InputError
from lwa.models.check import label_entries
from lwa.models.model import Model
from lwa.models.supports import Support
from lwa.user.validate import require_whole

GRADIENT_POINTS, POINTS_PER_PARAMETER = 300, 8
"""Draws at which the gradient is taken: with 8 per parameter, each half has four times as many as its line needs."""
FEWEST_JUDGED_DRAWS = 100


class Spread(NamedTuple):
    """Mean of all draws, and a factor F of their covariance F Fᵀ."""

    mean: Float64[np.ndarray, " d"]
    factor: Float64[np.ndarray, "d d"]


def collect_draws(model: Model, idata: object) -> Float64[np.ndarray, "chains draws d"]:
    """Return the draws as the model's flat vectors: unconstrained, in its order.

    If a run kept unconstrained draws and this model maps them to the run's parameters, they are returned as they are.
    """
    if hasattr(idata, "get_samples"):  # NumPyro's MCMC
        idata = idata.get_samples(group_by_chain=True)
    posterior = getattr(idata, "posterior", idata)
    present = [str(name) for name in posterior] if isinstance(posterior, Mapping) else []
    if not (isinstance(posterior, Mapping) and present):
        raise InputError(
            f"idata is of type {type(idata).__name__} and holds no draws. Pass a lwa.Result, an object of ArviZ or "
            "PyMC with a group 'posterior', NumPyro's MCMC, or a dict of arrays (chain, draw, *shape) by parameter."
        )
    require_labels(model, getattr(posterior, "coords", getattr(idata, "coords", None)))
    parts = []
    for name, shape in model.shapes.items():
        if name not in present:
            raise InputError(
                f"idata has no draws of {name!r}; it has {', '.join(map(repr, present))}. The model's parameters are "
                f"{', '.join(map(repr, model.shapes))}. Pass draws of all of them, under these names."
            )
        parts.append(require_draws(name, np.asarray(posterior[name]), shape))
    sizes = {name: part.shape[:2] for name, part in zip(model.shapes, parts, strict=True)}
    if len(set(sizes.values())) > 1:
        raise InputError(f"idata holds different numbers of chains and draws: {sizes}. Pass draws made together.")
    if (kept := find_unconstrained(model, getattr(idata, "unconstrained", None), parts)) is not None:
        return kept
    supports = model.supports.items()
    free = [unconstrain(name, support, part) for (name, support), part in zip(supports, parts, strict=True)]
    return np.concatenate(free, axis=-1)


def require_draws(name: str, values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the draws of a parameter; raise if they have another shape than its own, or are not finite numbers.

    Without an axis of chains they are one chain, as independent draws come from a variational fit.
    """
    if values.ndim == len(shape) + 1:
        values = values[None]
    if values.ndim != len(shape) + 2 or values.shape[2:] != shape:
        expected = ", ".join(["chains", "draws", *map(str, shape)])
        raise InputError(
            f"idata[{name!r}] has shape {values.shape}; ({expected}) is expected, without chains for a single one."
        )
    if not (np.issubdtype(values.dtype, np.number) and np.isrealobj(values)):
        raise InputError(f"idata[{name!r}] holds {values.dtype} values; real numbers are expected.")
    if not np.isfinite(values).all():
        raise InputError(
            f"idata[{name!r}] holds {(~np.isfinite(values)).sum()} values that are NaN or infinite. Draws are "
            "finite: pass the chains without them."
        )
    return values


def require_labels(model: Model, coords: Mapping[str, ArrayLike] | None) -> None:
    """Raise if the axes of draws have other labels than the model's: then they belong to other columns or levels."""
    for axis, labels in (model.coords or {}).items():
        if coords is None or axis not in coords:
            continue
        theirs, ours = ([str(label) for label in some] for some in (np.asarray(coords[axis]), labels))
        if theirs != ours:
            apart = [label for label in (*theirs, *ours) if (label in theirs) != (label in ours)] or theirs
            raise InputError(
                f"The draws and the model of these data have different labels along {axis!r}: {apart[0]!r} is only in "
                "one of them, or in another place. Pass the data that the draws were made with, or data with the same "
                "levels."
            )


def unconstrain(name: str, support: Support, values: NDArray[Any]) -> NDArray[np.float64]:
    """Return a parameter's draws on the unconstrained scale; raise if some lie outside its support."""
    free, inside = support.free(values)
    if not inside.all():
        raise InputError(
            f"{(~inside).sum()} of {inside.size} draws of {name!r} in idata lie outside its support: {support.words}, "
            f"boundaries excluded. The first is {values[~inside][0].tolist()}. Pass draws of {name!r} itself, as "
            "log_prior takes it (not of its logarithm, for example), or the model that they were drawn with."
        )
    return free


def find_unconstrained(model: Model, kept: object, parts: list[NDArray[Any]]) -> NDArray[np.float64] | None:
    """Return the unconstrained draws that a run kept, if this model maps them to the draws at hand; else None."""
    if not isinstance(kept, Mapping) or list(kept) != list(model.supports):
        return None
    free = [np.asarray(values) for values in kept.values()]
    expected = [(*part.shape[:2], model.supports[name].size) for name, part in zip(kept, parts, strict=True)]
    if [values.shape for values in free] != expected:
        return None
    together = np.concatenate(free, axis=-1)
    pairs = zip(parts, model.by_name(together).values(), strict=True)
    same = all(np.allclose(part, image, rtol=0, atol=1e-9 * np.abs(image).max()) for part, image in pairs)
    return together if same else None


def arrange_chains(draws: Float64[np.ndarray, "chains draws d"]) -> Float64[np.ndarray, "chains draws d"]:
    """Return at least two chains: what one half of them finds is measured on the other.

    A single chain is cut in half. Of many chains that are too short for an autocorrelation, only the last draw of each
    counts: these are independent, and form two chains.
    """
    chains, length, d = draws.shape
    enough = max(FEWEST_JUDGED_DRAWS, POINTS_PER_PARAMETER * d)
    if length < 8 and chains > MANY_CHAINS and chains >= enough:
        return draws[: chains // 2 * 2, -1].reshape(2, chains // 2, d)
    if chains * length < enough or length < 8:
        raise InputError(
            f"idata holds {chains} x {length} draws, too few to be judged. Pass at least {enough} in all, and 8 per "
            "chain; independent draws may be passed as one chain."
        )
    return draws if chains > 1 else draws[:, : length // 2 * 2].reshape(2, length // 2, d)


def choose_points(draws: Float64[np.ndarray, "chains draws d"], points: int | None) -> NDArray[np.int64]:
    """Return where to take gradients, as positions among all draws, chain after chain."""
    chains, length, d = draws.shape
    fewest = POINTS_PER_PARAMETER * d
    if points is not None:
        points = require_whole("points", points, least=max(fewest, 20), example=max(fewest, 20), also=" or None")
    count = max(GRADIENT_POINTS, fewest) if points is None else points
    return np.linspace(0, chains * length - 1, min(count, chains * length)).round().astype(np.int64)


def measure_spread(model: Model, draws: Float64[np.ndarray, "chains draws d"]) -> Spread:
    """Return mean and covariance of all draws; raise if they do not vary in some direction."""
    flat = draws.reshape(-1, draws.shape[-1])
    mean, sd = flat.mean(0), flat.std(0)
    names, moved = label_entries(model), sd > 1e-12 * (1e-300 + np.abs(mean))
    if still := [names[i] for i in np.flatnonzero(~moved)]:
        raise InputError(f"All draws of {', '.join(still)} are the same. Pass draws of every parameter that vary.")
    correlation = np.corrcoef(flat, rowvar=False).reshape(len(mean), len(mean))
    bend, axes = np.linalg.eigh(correlation)
    if bend[0] < 1e-10:
        used = [names[i] for i in np.flatnonzero(np.abs(axes[:, 0]) > 0.1)]
        raise InputError(
            f"The draws of {', '.join(used)} lie on a plane: each is a function of the others. Pass draws of all "
            "parameters that vary freely."
        )
    return Spread(mean, sd[:, None] * np.linalg.cholesky(correlation))
