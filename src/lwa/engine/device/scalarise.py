"""A function of θ and one row, written out number by number, so that a whole subset can stay in registers.

A kernel on a GPU holds the rows of a subset as lanes: one vector of n entries for each number that a row has. What a
user wrote for arrays (`x @ beta`, slices, sums over columns) is taken apart into operations on single numbers, each of
which is either the same for all rows, as an entry of θ is, or one vector of lanes. Shapes are resolved while tracing,
so nothing of them is left in the program. Loops of unknown length, sorting, and tables looked up by a row's code are
not written out: they raise `NotInLanes`, and such models run as ordinary JAX programs.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var  # type: ignore[attr-defined]
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import PyTree
from numpy.typing import NDArray

from lwa.engine.device.partial_eval import CALLS, bind, describe_var, get_callee

MOST_WRITTEN_OUT = 4096
"""Entries of any intermediate array: as many operations are written out for each."""

type NumberArray = NDArray[Any]
"""An array of the user's program: its entries are scalars, or vectors of lanes, as JAX traces them."""
type FlatLeaves = list[list[Array]]
"""One flat list of numbers for each leaf of a tree."""
type Fold = Callable[[ArrayLike, ArrayLike], Array]

REARRANGING = {
    "reshape", "broadcast_in_dim", "squeeze", "expand_dims", "transpose", "slice", "rev", "concatenate", "split",
    "copy", "stack", "unstack",
}  # fmt: skip
"""Operations that only put entries elsewhere."""
FOLDS: dict[str, Fold] = {
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
"""Operations on single numbers that a GPU program has."""


class NotInLanes(Exception):
    """A program that cannot be written out, and why."""


def write_out(function: Callable[..., PyTree], *examples: PyTree) -> Callable[..., FlatLeaves]:
    """Return the function from flat lists of numbers to flat lists of numbers, one list for each leaf.

    `examples` are arguments of the right shapes and types, rows being one row. Raises `NotInLanes` if it is impossible.
    """
    program = jax.make_jaxpr(function)(*examples)
    require_writable(program)
    shapes = [describe_var(var).shape for var in program.jaxpr.invars]

    def on_numbers(*leaves: Sequence[ArrayLike]) -> FlatLeaves:
        arguments = [as_numbers(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)]
        return [list(out.ravel()) for out in run_on_numbers(program, arguments)]

    def on_arrays(*leaves: Array) -> FlatLeaves:
        return on_numbers(*(list(leaf.reshape(-1)) for leaf in leaves))

    jax.eval_shape(on_arrays, *jax.tree.leaves(examples))  # what is found impossible on the way is raised here too
    return on_numbers


def as_numbers(entries: Sequence[ArrayLike], shape: tuple[int, ...]) -> NumberArray:
    """Return a flat list as an array of entries."""
    out = np.empty(len(entries), object)
    for i, entry in enumerate(entries):
        out[i] = entry
    return out.reshape(shape)


def require_writable(program: ClosedJaxpr) -> None:
    """Raise `NotInLanes`, before anything is compiled, if a program cannot be written out."""
    for equation in program.jaxpr.eqns:
        name = equation.primitive.name
        for shape in (describe_var(var).shape for var in equation.outvars):
            if np.prod(shape, dtype=np.int64) > MOST_WRITTEN_OUT:
                raise NotInLanes(f"an array of shape {shape} is too large to be written out")
        if name in CALLS:
            require_writable(get_callee(equation))
        elif name not in ENTRYWISE | REARRANGING | FOLDS.keys() | {"dot_general", "iota", "gather", "cumsum"}:
            raise NotInLanes(f"the operation {name!r} cannot be written out")


def run_on_numbers(program: ClosedJaxpr, arguments: Sequence[NumberArray]) -> list[NumberArray]:
    """Run a program on arrays of numbers."""
    held: dict[Var, NumberArray] = dict(zip(program.jaxpr.invars, arguments, strict=True))
    for var, constant in zip(program.jaxpr.constvars, program.consts, strict=True):
        held[var] = as_constants(constant)

    def read(atom: Var | Literal) -> NumberArray:
        return as_constants(atom.val) if isinstance(atom, Literal) else held[atom]

    for equation in program.jaxpr.eqns:
        found = perform_equation(equation, [read(atom) for atom in equation.invars])
        held.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in program.jaxpr.outvars]


def as_constants(value: ArrayLike) -> NumberArray:
    """Return an array that is known while tracing as an array of entries."""
    known = np.asarray(value)
    return as_numbers([known.dtype.type(entry) for entry in known.ravel()], known.shape)


def perform_equation(equation: JaxprEqn, given: list[NumberArray]) -> list[NumberArray]:
    """Perform one operation on numbers."""
    name, out = equation.primitive.name, describe_var(equation.outvars[0])
    if name in CALLS:
        return run_on_numbers(get_callee(equation), given)
    if name in REARRANGING:
        return rearrange(equation, given)
    if name in FOLDS:
        return [reduce_axes(FOLDS[name], given[0], equation.params["axes"])]
    if name == "dot_general":
        return [multiply_matrices(given[0], given[1], equation.params["dimension_numbers"], out)]
    if name == "cumsum":
        return [accumulate(given[0], equation.params["axis"], reverse=equation.params["reverse"])]
    if name == "gather":
        return [look_up(equation, given)]
    return [apply_entrywise(equation, given)]


def apply_entrywise(equation: JaxprEqn, given: list[NumberArray]) -> NumberArray:
    """Perform an operation on single numbers, for each of them."""
    name, out = equation.primitive.name, describe_var(equation.outvars[0])
    if all(isinstance(entry, np.generic) for numbers in given for entry in numbers.ravel()):
        return evaluate_constants(equation, given, out.shape)
    if name == "convert_element_type":
        dtype = equation.params["new_dtype"]
        return as_numbers([jnp.asarray(entry).astype(dtype) for entry in given[0].ravel()], out.shape)
    if name == "div" and is_known_nonzero(given[1]) and np.issubdtype(out.dtype, np.floating):
        return multiply_by_inverses(given[0], given[1], out.shape, out.dtype)
    types = [describe_var(var).dtype for var in equation.invars]
    flat = [np.broadcast_to(numbers, out.shape).ravel() for numbers in given]
    found = [bind(equation, *make_alike(entries, types))[0] for entries in zip(*flat, strict=True)]
    return as_numbers(found, out.shape)


def evaluate_constants(equation: JaxprEqn, given: list[NumberArray], shape: tuple[int, ...]) -> NumberArray:
    """Perform an operation that is given constants alone."""
    types = [describe_var(var).dtype for var in equation.invars]
    with jax.ensure_compile_time_eval():
        values = [jnp.asarray(numbers.tolist(), kind) for numbers, kind in zip(given, types, strict=True)]
        return as_constants(np.broadcast_to(bind(equation, *values)[0], shape))


def is_known_nonzero(numbers: NumberArray) -> bool:
    """Return whether all numbers are known while tracing, and none is 0."""
    return all(isinstance(entry, np.generic) and entry != 0 for entry in numbers.ravel())


def multiply_by_inverses(
    numbers: NumberArray, by: NumberArray, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NumberArray:
    """Divide by constants, as a product, which costs a tenth of it."""
    inverse = [dtype.type(1.0 / np.float64(entry)) for entry in np.broadcast_to(by, shape).ravel()]
    entries = np.broadcast_to(numbers, shape).ravel()
    return as_numbers([jnp.asarray(x) * one for x, one in zip(entries, inverse, strict=True)], shape)


def make_alike(entries: Sequence[ArrayLike], types: Sequence[DTypeLike]) -> list[Array]:
    """Return numbers of the types that the program has, all as vectors of lanes if one of them is."""
    shape = jnp.broadcast_shapes(*(jnp.shape(entry) for entry in entries))
    return [jnp.broadcast_to(as_type(entry, kind), shape) for entry, kind in zip(entries, types, strict=True)]


def as_type(entry: ArrayLike, kind: DTypeLike) -> Array:
    """Return a number of another type; true is whatever is not 0, since programs on a GPU store bits as numbers."""
    number, bits = jnp.asarray(entry), np.dtype(bool)
    return number != 0 if np.dtype(kind) is bits and number.dtype != bits else number.astype(kind)


def rearrange(equation: JaxprEqn, given: list[NumberArray]) -> list[NumberArray]:
    """Perform an operation that only puts entries elsewhere, by performing it on their places."""
    places, start = [], 0
    for numbers in given:
        places.append(np.arange(start, start + numbers.size).reshape(numbers.shape))
        start += numbers.size
    with jax.ensure_compile_time_eval():
        found = bind(equation, *places)
    flat = np.concatenate([numbers.ravel() for numbers in given])
    return [take_places(flat, place) for place in found]


def take_places(entries: NumberArray, places: ArrayLike) -> NumberArray:
    """Return entries of a flat array, in the shape of their places: an array even of a single one."""
    return entries[np.asarray(places).reshape(-1)].reshape(np.shape(places))


def reduce_axes(operation: Fold, numbers: NumberArray, axes: Sequence[int]) -> NumberArray:
    """Reduce an array over some axes."""
    kept = [axis for axis in range(numbers.ndim) if axis not in axes]
    lined = numbers.transpose(*kept, *axes).reshape(*(numbers.shape[axis] for axis in kept), -1)
    out = [reduce(operation, line) for line in lined.reshape(-1, lined.shape[-1])]
    return as_numbers(out, lined.shape[:-1])


def multiply_matrices(
    a: NumberArray, b: NumberArray, dimension_numbers: tuple[tuple[Sequence[int], ...], ...], out: jax.ShapeDtypeStruct
) -> NumberArray:
    """Multiply matrices, entry by entry, in the type of the result, which is like `out`."""
    (of_a, of_b), (batch_a, batch_b) = dimension_numbers
    a, b = order_axes(a, batch_a, of_a), order_axes(b, batch_b, of_b)
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


def order_axes(numbers: NumberArray, batch: Sequence[int], contracted: Sequence[int]) -> NumberArray:
    """Return an array with axes (batch, free, contracted)."""
    free = [axis for axis in range(numbers.ndim) if axis not in (*batch, *contracted)]
    sizes = [int(np.prod([numbers.shape[axis] for axis in axes])) for axes in (batch, free, contracted)]
    return numbers.transpose(*batch, *free, *contracted).reshape(sizes)


def accumulate(numbers: NumberArray, axis: int, *, reverse: bool) -> NumberArray:
    """Return running sums along an axis."""
    out: NumberArray = np.add.accumulate(np.flip(numbers, axis) if reverse else numbers, axis)
    return np.flip(out, axis) if reverse else out


def look_up(equation: JaxprEqn, given: list[NumberArray]) -> NumberArray:
    """Return entries at places that are known while tracing."""
    numbers, indices = given
    if not all(isinstance(entry, np.generic | int) for entry in indices.ravel()):
        raise NotInLanes("a table is looked up by a row's own code")
    places = np.arange(numbers.size).reshape(numbers.shape)
    with jax.ensure_compile_time_eval():
        (found,) = bind(equation, places, indices.astype(np.int64))
    return take_places(numbers.ravel(), found)
