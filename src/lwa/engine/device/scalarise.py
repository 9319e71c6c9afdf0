"""A function of θ and one row, written out number by number, so that a whole subset can stay in registers.

A kernel on a GPU holds the rows of U as lanes: one vector of n entries for each number that a row has. What a user
wrote for arrays (`x @ beta`, slices, sums over columns) is taken apart into operations on single numbers, each of
which is either the same for all rows, as an entry of θ is, or one vector of lanes. Shapes are dealt with while
tracing, so nothing of them is left in the program. Loops whose length is not known, sorting, and tables looked up by
a row's code are not written out: `NotInLanes` says so, and such models run as ordinary JAX programs.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Literal  # type: ignore[attr-defined]
from numpy.typing import NDArray

from lwa.engine.device.partial_eval import CALLS, called

MOST_NUMBERS = 4096
"""Entries of any array on the way: as many operations are written out for each."""

type Numbers = NDArray[Any]
"""An array of the user's program: its entries are scalars, or vectors of lanes, as JAX traces them."""

SHAPES = {
    "reshape", "broadcast_in_dim", "squeeze", "expand_dims", "transpose", "slice", "rev", "concatenate", "split",
    "copy", "stack", "unstack",
}  # fmt: skip
"""Operations that only put entries elsewhere."""
FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "reduce_sum": jnp.add, "reduce_max": jnp.maximum, "reduce_min": jnp.minimum, "reduce_prod": jnp.multiply,
    "reduce_and": jnp.logical_and, "reduce_or": jnp.logical_or,
}  # fmt: skip
ENTRYWISE = {
    "abs", "neg", "ceil", "floor", "exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt", "square", "pow",
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "add",
    "sub", "mul", "div", "rem", "max", "min", "and", "or", "xor", "not", "eq", "ne", "gt", "ge", "lt", "le",
    "integer_pow", "clamp", "logistic", "is_finite", "sign", "convert_element_type", "select_n", "stop_gradient",
    "nextafter", "add_any", "erf_inv",
}  # fmt: skip
"""Operations on single numbers that a GPU program knows."""


class NotInLanes(Exception):
    """A program that cannot be written out; says why."""


def written_out(function: Callable[..., Any], *examples: Any) -> Callable[..., list[list[Any]]]:
    """The same function from flat lists of numbers to flat lists of numbers, one for each leaf.

    `examples` are arguments of the right shapes and types, rows being one row. Raises `NotInLanes` where it cannot be.
    """
    program = jax.make_jaxpr(function)(*examples)
    known(program)
    shapes = [getattr(var.aval, "shape", ()) for var in program.jaxpr.invars]

    def on_numbers(*leaves: Sequence[Any]) -> list[list[Any]]:
        shaped = [as_numbers(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)]
        return [list(out.ravel()) for out in run(program, shaped)]

    def tried(*leaves: Array) -> list[list[Any]]:
        return on_numbers(*(list(leaf.reshape(-1)) for leaf in leaves))

    jax.eval_shape(tried, *jax.tree.leaves(examples))  # what only shows on the way is refused here too
    return on_numbers


def as_numbers(entries: Sequence[Any], shape: tuple[int, ...]) -> Numbers:
    """A flat list as an array of entries."""
    out = np.empty(len(entries), object)
    for i, entry in enumerate(entries):
        out[i] = entry
    return out.reshape(shape)


def known(program: ClosedJaxpr) -> None:
    """Refuse, before anything is compiled, what cannot be written out."""
    for equation in program.jaxpr.eqns:
        name = equation.primitive.name
        for shape in (getattr(var.aval, "shape", ()) for var in equation.outvars):
            if np.prod(shape, dtype=np.int64) > MOST_NUMBERS:
                raise NotInLanes(f"an array of shape {shape} is too large to be written out")
        if name in CALLS:
            known(called(equation))
        elif name not in ENTRYWISE | SHAPES | FOLDS.keys() | {"dot_general", "iota", "gather", "cumsum"}:
            raise NotInLanes(f"the operation {name!r} cannot be written out")


def run(program: ClosedJaxpr, arguments: Sequence[Numbers]) -> list[Numbers]:
    """The program on arrays of numbers."""
    held: dict[Any, Numbers] = dict(zip(program.jaxpr.invars, arguments, strict=True))
    for var, constant in zip(program.jaxpr.constvars, program.consts, strict=True):
        held[var] = constants(constant)

    def read(atom: Any) -> Numbers:
        return constants(atom.val) if isinstance(atom, Literal) else held[atom]

    for equation in program.jaxpr.eqns:
        found = perform(equation, [read(atom) for atom in equation.invars])
        held.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in program.jaxpr.outvars]


def constants(value: Any) -> Numbers:
    """An array that is known while tracing."""
    value = np.asarray(value)
    return as_numbers([value.dtype.type(entry) for entry in value.ravel()], value.shape)


def perform(equation: Any, given: list[Numbers]) -> list[Numbers]:
    """One operation."""
    name, out = equation.primitive.name, equation.outvars[0].aval
    if name in CALLS:
        return run(called(equation), given)
    if name in SHAPES:
        return moved(equation, given)
    if name in FOLDS:
        return [folded(FOLDS[name], given[0], equation.params["axes"])]
    if name == "dot_general":
        return [product(given[0], given[1], equation.params["dimension_numbers"], out)]
    if name == "iota":
        at = np.broadcast_to(
            np.expand_dims(np.arange(out.shape[equation.params["dimension"]]), others(out, equation)), out.shape
        )
        return [constants(at.astype(out.dtype))]
    if name == "cumsum":
        return [summed_up(given[0], equation.params["axis"], reverse=equation.params["reverse"])]
    if name == "gather":
        return [looked_up(equation, given)]
    return [entrywise(equation, given)]


def others(out: Any, equation: Any) -> tuple[int, ...]:
    """All axes but the one along which an iota counts."""
    return tuple(axis for axis in range(len(out.shape)) if axis != equation.params["dimension"])


def entrywise(equation: Any, given: list[Numbers]) -> Numbers:
    """An operation on single numbers, for each of them."""
    shape = equation.outvars[0].aval.shape
    if all(isinstance(entry, np.generic) for numbers in given for entry in numbers.ravel()):
        return known_already(equation, given, shape)
    if equation.primitive.name == "convert_element_type":
        dtype = equation.params["new_dtype"]
        return as_numbers([jnp.asarray(entry).astype(dtype) for entry in given[0].ravel()], shape)
    if (
        equation.primitive.name == "div"
        and is_known(given[1])
        and np.issubdtype(equation.outvars[0].aval.dtype, np.floating)
    ):
        return entrywise_product(given[0], given[1], shape, equation.outvars[0].aval.dtype)
    types = [var.aval.dtype for var in equation.invars]
    flat = [np.broadcast_to(numbers, shape).ravel() for numbers in given]

    def one(*entries: Any) -> Any:
        return equation.primitive.bind(*alike(entries, types), **equation.params)

    return as_numbers([one(*entries) for entries in zip(*flat, strict=True)], shape)


def known_already(equation: Any, given: list[Numbers], shape: tuple[int, ...]) -> Numbers:
    """What an operation finds that is given constants alone."""
    types = [var.aval.dtype for var in equation.invars]
    with jax.ensure_compile_time_eval():
        values = [jnp.asarray(numbers.tolist(), kind) for numbers, kind in zip(given, types, strict=True)]
        return constants(np.broadcast_to(equation.primitive.bind(*values, **equation.params), shape))


def is_known(numbers: Numbers) -> bool:
    """Whether all of them are known while tracing, and none is 0."""
    return all(isinstance(entry, np.generic) and entry != 0 for entry in numbers.ravel())


def entrywise_product(numbers: Numbers, by: Numbers, shape: tuple[int, ...], dtype: Any) -> Numbers:
    """A division by what is known, as a product, which costs a tenth of it."""
    inverse = [dtype.type(1.0 / np.float64(entry)) for entry in np.broadcast_to(by, shape).ravel()]
    entries = np.broadcast_to(numbers, shape).ravel()
    return as_numbers([jnp.asarray(x) * one for x, one in zip(entries, inverse, strict=True)], shape)


def alike(entries: Sequence[Any], types: Sequence[Any]) -> list[Array]:
    """Numbers of the types that the program has, as vectors of lanes where one of them is."""
    shape = jnp.broadcast_shapes(*(jnp.shape(entry) for entry in entries))
    return [jnp.broadcast_to(of_type(entry, kind), shape) for entry, kind in zip(entries, types, strict=True)]


def of_type(entry: Any, kind: Any) -> Array:
    """A number of another type; bits come from whatever is not 0, since programs on a GPU store them as numbers."""
    entry = jnp.asarray(entry)
    bits = np.dtype(bool)
    return entry != 0 if np.dtype(kind) is bits and entry.dtype != bits else entry.astype(kind)


def moved(equation: Any, given: list[Numbers]) -> list[Numbers]:
    """An operation that only puts entries elsewhere: where to, it says of their places."""
    places, start = [], 0
    for numbers in given:
        places.append(np.arange(start, start + numbers.size).reshape(numbers.shape))
        start += numbers.size
    with jax.ensure_compile_time_eval():
        found = equation.primitive.bind(*map(jnp.asarray, places), **equation.params)
    found = found if equation.primitive.multiple_results else [found]
    flat = np.concatenate([numbers.ravel() for numbers in given])
    return [at_places(flat, place) for place in found]


def at_places(entries: Numbers, places: Any) -> Numbers:
    """Entries of a flat array, in the shape of their places: an array even of a single one."""
    return entries[np.asarray(places).reshape(-1)].reshape(np.shape(places))


def folded(operation: Callable[[Any, Any], Any], numbers: Numbers, axes: Sequence[int]) -> Numbers:
    """A reduction over axes."""
    kept = [axis for axis in range(numbers.ndim) if axis not in axes]
    lined = numbers.transpose(*kept, *axes).reshape(*(numbers.shape[axis] for axis in kept), -1)
    out = [reduce(operation, line) for line in lined.reshape(-1, lined.shape[-1])]
    return as_numbers(out, lined.shape[:-1])


def product(a: Numbers, b: Numbers, dimension_numbers: Any, out: Any) -> Numbers:
    """A product of matrices, entry by entry, in the type of the result."""
    (of_a, of_b), (batch_a, batch_b) = dimension_numbers
    a, b = ordered(a, batch_a, of_a), ordered(b, batch_b, of_b)
    entries = []
    for left, right in zip(a, b, strict=True):
        for row in left:
            for column in right:
                terms = [
                    jnp.asarray(x).astype(out.dtype) * jnp.asarray(y).astype(out.dtype)
                    for x, y in zip(row, column, strict=True)
                ]
                entries.append(reduce(jnp.add, terms))
    return as_numbers(entries, out.shape)


def ordered(numbers: Numbers, batch: Sequence[int], contracted: Sequence[int]) -> Numbers:
    """Axes as (batch, free, contracted)."""
    free = [axis for axis in range(numbers.ndim) if axis not in (*batch, *contracted)]
    sizes = [int(np.prod([numbers.shape[axis] for axis in axes])) for axes in (batch, free, contracted)]
    return numbers.transpose(*batch, *free, *contracted).reshape(sizes)


def summed_up(numbers: Numbers, axis: int, *, reverse: bool) -> Numbers:
    """Running sums."""
    lined = np.moveaxis(numbers, axis, 0)
    lined = lined[::-1] if reverse else lined
    out = np.empty_like(lined)
    total = None
    for i, entries in enumerate(lined):
        flat = entries.ravel()
        total = flat if total is None else as_numbers([x + y for x, y in zip(total, flat, strict=True)], flat.shape)
        out[i] = total.reshape(entries.shape)
    return np.moveaxis(out[::-1] if reverse else out, 0, axis)


def looked_up(equation: Any, given: list[Numbers]) -> Numbers:
    """Entries at places that are known while tracing."""
    numbers, indices = given
    if not all(isinstance(entry, np.generic | int) for entry in indices.ravel()):
        raise NotInLanes("a table is looked up by a row's own code")
    places = np.arange(numbers.size).reshape(numbers.shape)
    with jax.ensure_compile_time_eval():
        found = equation.primitive.bind(jnp.asarray(places), jnp.asarray(indices.astype(np.int64)), **equation.params)
    return at_places(numbers.ravel(), found)
