"""Adaptive random walk over blocks of parameters: each move picks one of them and leaves all others as they are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int32

from lwa.errors import InputError
from lwa.kernels.kernel import AnyArray, MetropolisKernel, MoveInfo, Precision, log_uniform
from lwa.kernels.random_walk import blend_moments, optimal_scale, shrink_factor
from lwa.models.model import Model
from lwa.targets.reference import Reference
from lwa.user.validate import require_positive, require_share


class Group(NamedTuple):
    """Blocks of about one size m, filled up to it."""

    factor: Float[Array, "*blocks m m"]  # Cholesky factor of the block's covariance, the identity where it is filled up
    mean: Float[Array, "*blocks m"]  # running moments of the path
    covariance: Float[Array, "*blocks m m"]
    learnt: Bool[Array, "*blocks"]  # whether the shape is that of the path


class Tuning(NamedTuple):
    """What the walk has learnt of its target."""

    log_scale: Float[Array, " blocks"]
    groups: tuple[Group, ...]
    shaped: Bool[Array, ""]  # whether a reference gave the shapes, which are then kept


class Noise(NamedTuple):
    """The randomness of one move."""

    block: Int32[AnyArray, ""]  # which block moves
    direction: Float[AnyArray, " largest"]  # standard normal, of which a block takes as many as it needs
    log_u: Float[AnyArray, ""]


class GroupLayout(NamedTuple):
    """Where the blocks of a group are: among all blocks, and in θ."""

    first: int  # the number of its first block
    entries: Int32[np.ndarray, "blocks m"]  # of θ; d, which is out of range, where a block is filled up
    sizes: Int32[np.ndarray, " blocks"]


@dataclass(frozen=True)
class Blockwise(MetropolisKernel):
    """One block of parameters at a time, by a Gaussian random walk of its own covariance and scale.

    The block is drawn uniformly at each move (random scan), so every move is reversible, as `exact=True` needs.
    Covariances and scales are learnt during tune and then frozen, like those of `RandomWalk`. With a reference, a
    block's shape is its covariance given the other blocks, which does not change.

    Parameters
    ----------
    blocks
        Lists of parameter names, each name in one of them; None makes each parameter a block.
    target_accept
        The acceptance rate to aim for, block by block. The paper's experiments keep 0.25 to 0.40.
    scale
        The first step size; tune corrects it within tens of moves of a block.

    Examples
    --------
    >>> import lwa
    >>> kernel = lwa.kernels.Blockwise([["mu"], ["sigma", "beta"]])
    >>> kernel.blocks
    (('mu',), ('sigma', 'beta'))
    """

    blocks: Sequence[Sequence[str]] | None = None
    target_accept: float = 0.35
    scale: float = 0.1
    layout: tuple[tuple[tuple[int, ...], ...], ...] = field(default=(), repr=False)
    """θ's entries by group and block, once bound to a model."""

    def __post_init__(self) -> None:
        """Check the blocks, the rate and the scale."""
        require_share("target_accept", self.target_accept, example=0.35)
        require_positive("scale", self.scale, example=0.1)
        if self.blocks is None:
            return
        lists = isinstance(self.blocks, list | tuple) and all(isinstance(b, list | tuple) and b for b in self.blocks)
        if not lists or not self.blocks or not all(isinstance(name, str) for block in self.blocks for name in block):
            raise InputError(
                f"blocks={self.blocks!r} must be lists of parameter names. Pass blocks=[['mu'], ['sigma', 'beta']], "
                "for example, or blocks=None for one block per parameter."
            )
        object.__setattr__(self, "blocks", tuple(tuple(block) for block in self.blocks))  # hashable

    def bind(self, model: Model) -> "Blockwise":
        """Find the blocks' entries in θ; blocks of about one size are grouped, so that they are one array."""
        names = list(model.shapes)
        blocks = [(name,) for name in names] if self.blocks is None else self.blocks
        require_partition(blocks, names)
        sizes = [int(np.prod(shape)) for shape in model.shapes.values()]
        entries = {name: range(end - size, end) for name, size, end in zip(names, sizes, np.cumsum(sizes), strict=True)}
        groups: dict[int, list[tuple[int, ...]]] = {}
        for block in blocks:
            found = tuple(int(entry) for name in block for entry in entries[name])
            if found:  # a parameter of no entries is no block
                groups.setdefault((len(found) - 1).bit_length(), []).append(found)
        return replace(self, layout=tuple(tuple(groups[size]) for size in sorted(groups)))

    @property
    def count(self) -> int:
        """The number of blocks that take turns."""
        return sum(map(len, self.layout))

    def _layouts(self) -> Iterator[GroupLayout]:
        """Yield the groups of the layout, with blocks filled up to one size."""
        first, d = 0, sum(len(block) for group in self.layout for block in group)
        for group in self.layout:
            sizes = np.array([len(block) for block in group], np.int32)
            entries = np.full((len(group), sizes.max()), d, np.int32)
            for row, block in zip(entries, group, strict=True):
                row[: len(block)] = block
            yield GroupLayout(first, entries, sizes)
            first += len(group)

    def noise(self, rng: np.random.Generator, moves: int, d: int, dtype: Precision) -> Noise:
        """Draw the blocks, directions and uniforms of a page."""
        longest = max(len(block) for group in self.layout for block in group)
        block = rng.integers(self.count, size=moves, dtype=np.int32)
        return Noise(block, rng.standard_normal((moves, longest), dtype), log_uniform(rng, moves))

    def init(self, theta: Array, reference: Reference | None) -> Tuning:
        """Return round walks of the first step size; with a reference, its shapes and the step sizes suited to them."""
        dtype, groups, scales = theta.dtype, [], []
        for layout in self._layouts():
            count, m = layout.entries.shape
            factors, covariances = jnp.broadcast_to(jnp.eye(m), (count, m, m)), jnp.zeros((count, m, m))
            if reference is not None:
                factors, covariances = find_conditional_covariances(reference.precision, layout)
            mean = jnp.asarray(theta).at[layout.entries].get(mode="fill", fill_value=0.0)
            arrays = (jnp.asarray(factors, dtype), mean, jnp.asarray(covariances, dtype))
            groups.append(Group(*arrays, jnp.zeros(len(layout.sizes), bool)))
            scales.append(optimal_scale(layout.sizes) if reference is not None else np.full(count, self.scale))
        log_scale = jnp.log(jnp.concatenate([jnp.asarray(scale) for scale in scales])).astype(dtype)
        return Tuning(log_scale, tuple(groups), jnp.asarray(reference is not None))

    def propose(self, noise: Noise, tuning: Tuning, theta: Array) -> tuple[Array, float]:
        """Return θ'_b = θ_b + scale_b · factor_b · z for the block b that moves; symmetric, as b is drawn blindly."""
        scale, d = jnp.exp(tuning.log_scale[noise.block]), theta.shape[-1]
        for layout, group in zip(self._layouts(), tuning.groups, strict=True):
            count, m = layout.entries.shape
            mine = (noise.block >= layout.first) & (noise.block < layout.first + count)
            own = jnp.clip(noise.block - layout.first, 0, count - 1)
            entries = jnp.where(mine, jnp.asarray(layout.entries)[own], d)  # out of range, so dropped
            theta = theta.at[entries].add(scale * (group.factor[own] @ noise.direction[:m]), mode="drop")
        return theta, 0.0

    def steer(self, tuning: Tuning, noise: Noise, info: MoveInfo, gain: Array) -> Tuning:
        """log scale ← log scale + gain (acceptance - target), for the block that moved."""
        surprise = (info.acceptance - self.target_accept).astype(tuning.log_scale.dtype)
        step = (block_gain(gain, self.count) * surprise).astype(tuning.log_scale.dtype)
        return tuning._replace(log_scale=tuning.log_scale.at[noise.block].add(step))

    def adapt(self, tuning: Tuning, path: Array, moves: Array) -> Tuning:
        """Take the covariance of each block's own path, once it has made about as many moves as the path is long."""
        own = moves / self.count
        path = jnp.pad(path.astype(jnp.float64), ((0, 0), (0, 1)))  # what blocks are filled up with
        groups, log_scale = [], tuning.log_scale
        for layout, group in zip(self._layouts(), tuning.groups, strict=True):
            learnt = partial(learn_block, moves=moves, own=own, enough=float(len(path)))
            new = jax.vmap(learnt, in_axes=(0, 1, 0))(group, path[:, layout.entries], jnp.asarray(layout.sizes))
            factor = jnp.where(tuning.shaped, group.factor, new.factor)
            new = new._replace(factor=factor, learnt=new.learnt & ~tuning.shaped)
            here = slice(layout.first, layout.first + len(layout.sizes))
            suits = jnp.log(optimal_scale(layout.sizes)).astype(log_scale.dtype)
            log_scale = log_scale.at[here].set(jnp.where(new.learnt & ~group.learnt, suits, log_scale[here]))
            groups.append(new)
        return tuning._replace(log_scale=log_scale, groups=tuple(groups))

    def proposal_variances(self, tuning: Tuning) -> list[float]:
        """Return scale² times the mean of the covariance's diagonal for each block, in the order of the layout."""
        found: list[float] = []
        for layout, group in zip(self._layouts(), tuning.groups, strict=True):
            here = slice(layout.first, layout.first + len(layout.sizes))
            entries = np.square(group.factor).sum(-1)  # (chains, blocks, m)
            real = np.arange(entries.shape[-1]) < layout.sizes[:, None]
            own = np.where(real, entries, 0.0).sum(-1) / layout.sizes
            found += np.mean(np.exp(2 * np.asarray(tuning.log_scale[:, here])) * own, axis=0).tolist()
        return found

    def describe(self, tuning: Tuning) -> str:
        """Report how many blocks there are, and their step sizes in units of their shapes."""
        scales = np.exp(np.mean(tuning.log_scale, axis=0))
        sizes = f"{scales.min():.2g}" if len(scales) == 1 else f"{scales.min():.2g} to {scales.max():.2g}"
        blocks = "1 block" if len(scales) == 1 else f"{len(scales)} blocks"
        return f"adaptive random walk over {blocks}, step size {sizes}"


def require_partition(blocks: Sequence[Sequence[str]], names: list[str]) -> None:
    """Raise `InputError` if blocks name an unknown parameter, name one twice or leave one out."""
    named = [name for block in blocks for name in block]
    faults = {
        "names {}, which the model does not have": [name for name in named if name not in names],
        "names {} more than once": [name for name in names if named.count(name) > 1],
        "leaves out {}": [name for name in names if name not in named],
    }
    for fault, guilty in faults.items():
        if guilty:
            raise InputError(
                f"blocks={[list(block) for block in blocks]} {fault.format(', '.join(map(repr, guilty)))}. Pass each "
                f"of {', '.join(map(repr, names))} in one block."
            )


def find_conditional_covariances(precision: Float[AnyArray, "d d"], layout: GroupLayout) -> tuple[Array, Array]:
    """Return the factor of each block's covariance given the other blocks, and that inverse of its precision.

    Where a block is filled up, the factor is the identity and the covariance zero.
    """
    entries, m = layout.entries, layout.entries.shape[-1]
    real = np.arange(m) < layout.sizes[:, None]
    within = real[:, :, None] & real[:, None, :]
    own = jnp.pad(jnp.asarray(precision), (0, 1))[entries[:, :, None], entries[:, None, :]]
    covariances = jnp.linalg.inv(jnp.where(within, own, jnp.eye(m)))
    return jnp.linalg.cholesky(covariances), jnp.where(within, covariances, 0.0)


def block_gain(gain: Array, blocks: int) -> Array:
    """Return `steering_gain`, (1 + moves/10)^-0.6, of the moves that one block has made; 0 if the gain is 0."""
    moves = jnp.where(gain > 0, gain, 1.0) ** (-1 / 0.6) - 1.0  # in tens
    return jnp.where(gain > 0, (1.0 + moves / blocks) ** -0.6, 0.0)


def learn_block(group: Group, path: Array, size: Array, moves: Array, own: Array, enough: float) -> Group:
    """Learn a block's moments and shape from the last moves; it has made `own` moves so far."""
    real = jnp.arange(path.shape[-1]) < size
    mean, covariance = blend_moments(group.mean, group.covariance, path, moves)
    filled = jnp.where(real[:, None] & real, covariance, jnp.eye(len(real)))
    factor = shrink_factor(filled, own, size)
    usable = (own >= enough) & jnp.all(jnp.isfinite(factor)) & jnp.all(jnp.diag(filled) > 0)
    factor = jnp.where(usable, factor, group.factor).astype(group.factor.dtype)
    return Group(factor, mean.astype(factor.dtype), covariance.astype(factor.dtype), group.learnt | usable)
