"""What the calibrated target needs of a subset U besides its rows, computed by the U chain in float64.

Each row of U carries its score ∇ℓ_k(θ̂) and, if the target is transported, its curvature -∇²ℓ_k(θ̂). Their sums over U,
which the U chain keeps, give the tilt and A_U.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.linalg import lapack

from lwa.backend import xla
from lwa.backend.random import Purpose, generator
from lwa.backend.xla import program
from lwa.models.likelihood import compute_in_parts, find_likelihood, split_into_blocks
from lwa.models.model import Model
from lwa.rows import Batch, Rows
from lwa.targets.reference import Reference, sum_batches
from lwa.targets.target import Expansion, Given

OWN_SHARE = 0.1
"""A direction is transported if the rows, not the prior, hold at least this share of the posterior's curvature."""
PILOTS = 8
"""Uniform subsets on which the need for leverage is tested."""
WEAKEST = 0.15
"""Leverage is used if one of them has less than this share of all rows' curvature along some direction. Normal
covariates leave 0.47 at n = 10 d; a dummy that five rows of U have leaves less in one subset of 25."""
TRANSPORT_PILOTS, FLATTER, STEEPER = 16, 0.7, 1.5
"""Normal covariates leave shares from (1-√(d/n))² to (1+√(d/n))². If one of so many subsets goes beyond these by such a
factor, A_U takes rows where all rows never go, and rows are expanded to second order instead."""
LARGEST_TRANSPORTED = 12
"""Parameters up to which subsets are transported; with more, rows are expanded to second order: A_U costs d³. A GPU
always expands: then U computes nothing for the target and can move on the device with θ."""
LARGEST_IN_BATCH = 32
"""Parameters up to which one program computes A_U of many subsets."""
SIDE_BY_SIDE = 64
"""Subsets computed together on a CPU, whose cache holds their matrices."""
FLATTEST = 50.0
"""A subset with less than a fiftieth of all rows' curvature along a direction does not count as definite: rounding can
make a singular matrix look positive definite, and A_U would stretch that direction beyond all use."""
SDS = 30.0
"""The calibrated target ends this many posterior sds, plus √d, from θ̂. No draw of a proper posterior is out there, but
if every row's log-likelihood has a logarithmic tail, the linear term would outweigh it."""


class Frame(NamedTuple):
    """Coordinates in which curvatures are compared, and the curvature of all rows there.

    They are those of θ if H_N is positive definite. Otherwise the columns of `into` = F V span the directions that the
    rows identify (not, say, the coefficient of a level that no row has), with eigenvectors V of Fᵀ H_N F.
    """

    full: Array  # (r, r)  L_N, the Cholesky factor of H_N in these coordinates
    into: Array | None = None  # (d, r)  F V
    out: Array | None = None  # (r, d)  Vᵀ F⁻¹


@dataclass(frozen=True)
class Calibration:
    """Computes what θ's target needs of U from what U's rows carry."""

    model: Model
    reference: Reference
    power: float  # w
    frame: Frame | None  # None: A_U is the identity

    @property
    def width(self) -> int:
        """c, the number of entries that a row carries."""
        d = self.model.dimension
        return d if self.frame is None else d + d * (d + 1) // 2

    @property
    def in_batch(self) -> bool:
        """Whether one program computes A_U of many subsets."""
        return self.frame is not None and self.model.dimension <= LARGEST_IN_BATCH

    def carry(self, batch: Batch) -> NDArray[np.float64]:
        """Return ∇ℓ_k(θ̂) of each row, then the upper triangle of -∇²ℓ_k(θ̂), `(m, c)`."""
        likelihood = find_likelihood(self.model)
        carried = partial(likelihood.differentiate_rows, self.reference.theta, curvature=self.frame is not None)
        return compute_in_parts(carried, batch, self.width, likelihood)

    def total(self, batch: Batch, counts: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Return the sum of what rows carry, each counted c_k times, without storing that of single rows."""
        found = sum_batches(self.model, split_into_blocks(batch), self.reference.theta, counts)
        if self.frame is None:
            return found.gradient
        return np.concatenate([found.gradient, found.curvature[np.triu_indices(self.model.dimension)]])

    def blank(self) -> Given:
        """Return a `Given` of the right shapes, filled with zeros."""
        d = self.model.dimension
        none = Given(np.zeros(d))
        return none if self.frame is None else none._replace(transport=np.zeros((d, d)), feasible=np.zeros((), bool))

    def given(self, sums: Float64[ArrayLike, "*subsets c"]) -> Given:
        """Return tilt and transport of subsets whose rows carry these sums."""
        gradient, sums = jnp.asarray(self.reference.gradient), jnp.asarray(sums)
        if self.frame is None:
            return Given(gradient - self.power * sums)
        if self.in_batch:
            return build_given_in_batch(self.frame, gradient, self.power, sums)
        inverse, feasible = invert_factors(compute_curvatures(self.frame, len(gradient), self.power, sums))
        return build_given(self.frame, gradient, self.power, sums, inverse=inverse, feasible=feasible)


def build_expansion(reference: Reference, *, second_order: bool = False, whole: bool = False) -> Expansion:
    """Return what the calibrated target needs of all rows; if a subset is the `whole` of them, it ends nowhere."""
    end = np.inf if whole else edge(len(reference.theta))
    parts = [reference.theta, reference.gradient, reference.whitening, end]
    if second_order:  # coordinates in which F⁻¹ and H_N are both diagonal, so that one product serves both
        share, axes = np.linalg.eigh(reference.factor.T @ reference.curvature @ reference.factor)
        parts[2:3] = [axes.T @ reference.whitening]
        parts.append(np.maximum(share, 0.0))
    return Expansion(*(jnp.asarray(part) for part in parts))


def takes_second_order(transport: bool | str, d: int, *, informed: bool) -> bool:
    """Return whether H_N replaces U's curvature for d parameters; not if subsets are chosen by their curvature."""
    if transport == "auto":
        return not informed and (d > LARGEST_TRANSPORTED or xla.accelerated())
    return transport == "second_order"


def edge(d: int) -> float:
    """Return the distance from θ̂, in posterior sds, at which the calibrated target ends."""
    return SDS + d**0.5


def calibrate(model: Model, reference: Reference, power: float, *, transport: bool) -> Calibration:
    """Return the calibration of subsets at a reference point."""
    return Calibration(model, reference, power, build_frame(reference) if transport else None)


def find_identified_directions(reference: Reference) -> NDArray[np.float64]:
    """Return the directions that the rows, not the prior alone, identify, `(d, r)`; all rows' curvature there is 1."""
    share, axes = np.linalg.eigh(reference.factor.T @ reference.curvature @ reference.factor)
    kept = share > OWN_SHARE
    return reference.factor @ axes[:, kept] / np.sqrt(share[kept])


def find_curvature_range(
    model: Model, rows: Rows, n: int, reference: Reference, seed: int, *, pilots: int = PILOTS
) -> tuple[float, float]:
    """Return the least and the largest share of all rows' curvature, along any direction, in some uniform subsets."""
    identified = find_identified_directions(reference)
    least, most = 1.0, 1.0
    for pilot in range(pilots):
        drawn = generator(seed, Purpose.SUBSET_PILOT, pilot, n).choice(len(rows), n, replace=False)
        few = sum_batches(model, split_into_blocks(rows.take(np.sort(drawn))), reference.theta)
        share = np.linalg.eigvalsh(identified.T @ (len(rows) / n * few.curvature) @ identified)
        least, most = min(least, share.min(initial=1.0)), max(most, share.max(initial=1.0))
    return least, most


def is_leverage_needed(model: Model, rows: Rows, n: int, reference: Reference, seed: int) -> bool:
    """Return whether a uniform subset may hardly identify a direction that all rows identify."""
    return n < len(rows) and find_curvature_range(model, rows, n, reference, seed)[0] < WEAKEST


def is_transport_safe(model: Model, rows: Rows, n: int, reference: Reference, seed: int) -> bool:
    """Return whether uniform subsets' curvature is so near that of all rows that A_U hardly moves a row's argument."""
    least, most = find_curvature_range(model, rows, n, reference, seed, pilots=TRANSPORT_PILOTS)
    spread = (len(reference.theta) / n) ** 0.5
    return least > FLATTER * (1 - min(1.0, spread)) ** 2 and most < STEEPER * (1 + spread) ** 2


def build_frame(reference: Reference) -> Frame:
    """Return the directions in which the rows identify the posterior, and their curvature there."""
    factor, whitening = reference.factor, reference.whitening
    own = factor.T @ reference.curvature @ factor
    share, axes = np.linalg.eigh(own)
    if share[0] > OWN_SHARE:
        return Frame(jnp.asarray(np.linalg.cholesky(reference.curvature)))
    kept = axes[:, share > OWN_SHARE]
    parts = (np.linalg.cholesky(kept.T @ own @ kept), factor @ kept, kept.T @ whitening)
    return Frame(*(jnp.asarray(part) for part in parts))


@partial(jax.jit, static_argnames=("d", "power"))
def compute_curvatures(frame: Frame, d: int, power: float, sums: Array) -> Array:
    """Return H_U in the frame's coordinates."""
    rows, columns = np.triu_indices(d)
    entry = np.empty((d, d), np.int64)
    entry[rows, columns] = entry[columns, rows] = d + np.arange(len(rows))
    bend = power * sums[..., entry]
    return bend if frame.into is None else frame.into.T @ bend @ frame.into


def invert_factors(bend: Array) -> tuple[Array, Array]:
    """Return L⁻¹ with L Lᵀ = H for many H, or the identity if H is not positive definite, and whether it is.

    It works matrix by matrix: for larger ones, the triangular solver that JAX calls for a batch runs on its own
    threads, which wait for each other while all cores are busy with chains.
    """
    inverse = np.array(bend).reshape(-1, *bend.shape[-2:])
    feasible = np.empty(len(inverse), bool)
    for i, one in enumerate(inverse):
        upper, failed = lapack.dpotrf(one.T)
        feasible[i] = failed == 0
        inverse[i] = lapack.dtrtri(upper)[0].T if feasible[i] else np.eye(len(one))
    return jnp.asarray(inverse.reshape(bend.shape)), jnp.asarray(feasible.reshape(bend.shape[:-2]))


def invert_factors_in_batch(bend: Array) -> tuple[Array, Array]:
    """Do what `invert_factors` does for small matrices `(m, r, r)` at once: eliminate columns from [H, 1].

    LAPACK, which JAX calls matrix by matrix, takes more than twice as long at r = 10 (`benchmarks/choices.py`).
    """
    r = bend.shape[-1]
    one = jnp.broadcast_to(jnp.eye(r)[..., None], (r, r, len(bend)))

    def eliminate(j: Array, both: Array) -> Array:
        row, column = both[j], both[:, j]
        factor = jnp.where(jnp.arange(r)[:, None] > j, column / row[j], 0.0)
        factor, row = jax.lax.optimization_barrier((factor, row))  # type: ignore[no-untyped-call]  # computed once
        return both - factor[:, None] * row

    both = jax.lax.fori_loop(0, r - 1, eliminate, jnp.concatenate([jnp.moveaxis(bend, 0, -1), one], axis=1))
    pivots = both[jnp.arange(r), jnp.arange(r)]  # H = L D Lᵀ, and this is D
    feasible = (pivots > 0).all(0)
    inverse = jnp.moveaxis(both[:, r:] * jax.lax.rsqrt(jnp.where(feasible, pivots, 1.0))[:, None], -1, 0)
    return jnp.where(feasible[:, None, None], inverse, jnp.eye(r)), feasible


@partial(jax.jit, static_argnames=("power",))
def build_given(frame: Frame, gradient: Array, power: float, sums: Array, inverse: Array, feasible: Array) -> Given:
    """Return A = L_U⁻ᵀ L_Nᵀ, so that Aᵀ H_U A = H_N, and slope = g_N - w Aᵀ Σ_U c_k ∇ℓ_k."""
    d = len(gradient)
    flatness = ((inverse @ frame.full) ** 2).sum((-2, -1))  # Σ 1/λ, λ the eigenvalues of H_N⁻¹ H_U
    feasible &= flatness <= FLATTEST + 3.0 * len(frame.full)  # False for NaN too
    transport = jnp.swapaxes(inverse, -1, -2) @ frame.full.T
    transport = jnp.where(feasible[..., None, None], transport, jnp.eye(len(frame.full)))
    if frame.into is not None and frame.out is not None:
        transport = jnp.eye(d) + frame.into @ (transport - jnp.eye(len(frame.full))) @ frame.out
    scores = power * sums[..., :d]
    return Given(gradient - jnp.einsum("...ij,...i->...j", transport, scores), transport, feasible)


@program(static_argnames=("power",))
def build_given_in_batch(frame: Frame, gradient: Array, power: float, sums: Array) -> Given:
    """Compute tilt and transport of many subsets in one program."""
    m, c = int(np.prod(sums.shape[:-1])), sums.shape[-1]
    together = SIDE_BY_SIDE if jax.default_backend() == "cpu" and m % SIDE_BY_SIDE == 0 else m

    def part(sums: Array) -> Given:
        inverse, feasible = invert_factors_in_batch(compute_curvatures(frame, len(gradient), power, sums))
        return build_given(frame, gradient, power, sums, inverse=inverse, feasible=feasible)

    found = jax.lax.map(part, sums.reshape(-1, together, c))
    return jax.tree.map(lambda leaf: leaf.reshape(*sums.shape[:-1], *leaf.shape[2:]), found)
