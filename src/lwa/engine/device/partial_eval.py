"""Split a row's term into what depends on the row alone, found once for all rows, and what is left for every θ.

For example, the second-order remainder of a row contains its value, slope and bend at θ̂, which no θ changes. The
program of a row's term is taken apart: what depends on the row and on θ̂, but not on θ, is computed when rows are put on
the device, and its results travel as if they were the row's own numbers.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Primitive, Var  # type: ignore[attr-defined]
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import PyTree, PyTreeDef

from lwa.targets.target import Target

CHEAP_OPERATIONS = {
    "neg", "add", "sub", "mul", "select_n", "eq", "ne", "lt", "le", "gt", "ge", "max", "min", "abs", "and", "or", "not",
    "convert_element_type", "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "sign",
    "is_finite", "copy", "rev",
}  # fmt: skip
"""What is computed again for each θ rather than kept with each row."""
CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"}


class Split(NamedTuple):
    """A row's term in three parts."""

    prepare: Callable[[Target, PyTree], list[Array]]  # target, rows (m, ...) -> leaves (m, ...): what to read of each
    numbers: Callable[[Array, Target], list[Array]]  # θ, target -> what depends on no row
    terms: Callable[[list[Array], list[Array]], Array]  # those numbers, those leaves with the rows last -> (n,)


class Constant(NamedTuple):
    """A value that is known."""

    value: ArrayLike


type Value = int | Constant
"""The number of a variable, or a constant."""


class Operation(NamedTuple):
    """One step of a program without calls: variables are numbered."""

    primitive: Primitive
    params: dict[str, object]
    given: list[Value]
    found: list[int]


class Program(NamedTuple):
    """A program without calls."""

    operations: list[Operation]
    arguments: list[int]
    results: list[Value]
    shapes: dict[int, tuple[int, ...]]  # of each variable


def inline_calls(program: ClosedJaxpr) -> Program:
    """Replace every call in a program by the program that it calls."""
    operations: list[Operation] = []
    shapes: dict[int, tuple[int, ...]] = {}
    seen: dict[tuple[object, ...], list[int]] = {}  # what has been computed before, by what it was computed from

    def number(var: Var) -> int:
        shapes[len(shapes)] = describe_var(var).shape
        return len(shapes) - 1

    def enter(inner: ClosedJaxpr, given: Sequence[Value]) -> list[Value]:
        held: dict[Var, Value] = dict(zip(inner.jaxpr.invars, given, strict=True))
        held |= {var: Constant(value) for var, value in zip(inner.jaxpr.constvars, inner.consts, strict=True)}

        def read(atom: Var | Literal) -> Value:
            return Constant(atom.val) if isinstance(atom, Literal) else held[atom]

        for equation in inner.jaxpr.eqns:
            values = [read(atom) for atom in equation.invars]
            constants = [value for value in values if isinstance(value, Constant)]
            found: Sequence[Value]
            if equation.primitive.name in CALLS:
                found = enter(get_callee(equation), values)
            elif len(constants) == len(values):
                found = fold_constants(equation, constants)
            elif (name := name_operation(equation, values)) in seen:
                found = seen[name]
            else:
                found = seen[name] = [number(var) for var in equation.outvars]
                operations.append(Operation(equation.primitive, equation.params, values, seen[name]))
            held.update(zip(equation.outvars, found, strict=True))
        return [read(atom) for atom in inner.jaxpr.outvars]

    arguments = [number(var) for var in program.jaxpr.invars]
    return Program(operations, arguments, enter(program, arguments), shapes)


def fold_constants(equation: JaxprEqn, values: Sequence[Constant]) -> list[Constant]:
    """Perform an operation that is given constants alone."""
    with jax.ensure_compile_time_eval():
        found = bind(equation, *(value.value for value in values))
    return [Constant(np.asarray(one)) for one in found]


def name_operation(equation: JaxprEqn, values: Sequence[Value]) -> tuple[object, ...]:
    """Return a name for an operation and what it is given: two of one name find the same."""
    given = tuple(name_constant(v.value) if isinstance(v, Constant) else v for v in values)
    return equation.primitive.name, str(sorted(equation.params.items(), key=lambda item: item[0])), given


def name_constant(value: ArrayLike) -> object:
    """Return what makes two constants the same."""
    if isinstance(value, jax.core.Tracer):
        return id(value)
    held = np.asarray(value)
    return str(held.dtype), held.shape, held.tobytes()


def get_callee(equation: JaxprEqn) -> ClosedJaxpr:
    """Return the program that a call calls."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if (inner := equation.params.get(name)) is not None:
            return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
    raise TypeError(f"{equation.primitive.name} calls no program")


def perform_operations(operations: Sequence[Operation], held: dict[int, Array]) -> None:
    """Perform operations on what is held; what they find is held too."""
    for operation in operations:
        given = [value.value if isinstance(value, Constant) else held[value] for value in operation.given]
        held.update(zip(operation.found, bind(operation, *given), strict=True))


def bind(operation: Operation | JaxprEqn, *given: ArrayLike) -> list[Array]:
    """Return the results of an operation."""
    primitive: Primitive = operation.primitive
    found = primitive.bind(*map(jnp.asarray, given), **operation.params)  # type: ignore[no-untyped-call]
    return list(found) if primitive.multiple_results else [found]


def describe_var(var: Var | Literal) -> jax.ShapeDtypeStruct:
    """Return the shape and type of a variable."""
    return describe_array(getattr(var.aval, "shape", ()), getattr(var.aval, "dtype", bool))  # a token has neither


def split_target(target: Target, theta: Array, one_row: PyTree) -> Split:
    """Split a target's row terms; one object per model and shapes, so that nothing is traced again.

    `one_row` has the rows on the last axis, one of them.
    """
    leaves, tree = jax.tree.flatten((theta, target, one_row))
    return _split(tree, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves))


@cache
def _split(tree: PyTreeDef, shapes: tuple[tuple[tuple[int, ...], DTypeLike], ...]) -> Split:
    theta, target, one_row = jax.tree.unflatten(tree, [describe_array(*shape) for shape in shapes])

    def row_terms(theta: Array, target: Target, rows: PyTree) -> Array:
        return target.row_terms(theta, rows, None)

    return split_by_theta(row_terms, theta, target, one_row)


def describe_array(shape: tuple[int, ...], dtype: DTypeLike) -> jax.ShapeDtypeStruct:
    """Return a stand-in for an array of which nothing but its shape and type is known."""
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def split_by_theta(
    row_terms: Callable[[Array, Target, PyTree], Array], theta: Array, target: Target, one_row: PyTree
) -> Split:
    """Split a row's term, `(theta, target, rows) -> (n,)` with the rows last, by what depends on θ, the row or both.

    Only the shapes and types of arguments matter. Rows are taken one at a time, since a term depends on no other row.
    """
    program = inline_calls(jax.make_jaxpr(row_terms)(theta, target, one_row))
    first = len(program.arguments) - len(jax.tree.leaves(one_row))
    given, of_row = program.arguments[:first], program.arguments[first:]
    by_theta, by_row = find_dependents(program.operations, {given[0]}), find_dependents(program.operations, set(of_row))
    apart = [operation for operation in program.operations if not set(operation.found) & by_row]
    before = [op for op in program.operations if set(op.found) & by_row and not set(op.found) & by_theta]
    after = [op for op in program.operations if set(op.found) & by_row & by_theta]
    wanted = [value for operation in after for value in operation.given] + program.results
    variables = dict.fromkeys(value for value in wanted if not isinstance(value, Constant))
    of_rows = [v for v in variables if v in by_row and v not in by_theta]
    kept, again = choose_kept(program, before, after, by_row, of_rows)
    wanted += [value for operation in again for value in operation.given]
    variables = dict.fromkeys(value for value in wanted if not isinstance(value, Constant))
    asked = [number for number in variables if number not in by_row]

    def prepare(target: Target, rows: PyTree) -> list[Array]:
        def one(*leaves: Array) -> list[Array]:
            held = dict(zip(given[1:], jax.tree.leaves(target), strict=True))
            held |= dict(zip(of_row, (leaf[..., None] for leaf in leaves), strict=True))
            perform_operations([op for op in apart if not set(op.found) & by_theta], held)
            perform_operations(before, held)
            return [held[number] for number in kept]

        return jax.vmap(one)(*jax.tree.leaves(rows))

    def numbers(theta: Array, target: Target) -> list[Array]:
        held = dict(zip(given, [theta, *jax.tree.leaves(target)], strict=True))
        perform_operations(apart, held)
        return [held[number] for number in asked]

    def terms(numbers: list[Array], rows: list[Array]) -> Array:
        def one(*leaves: Array) -> Array:
            held = {**dict(zip(asked, numbers, strict=True)), **dict(zip(kept, leaves, strict=True))}
            perform_operations([*again, *after], held)
            (out,) = [value.value if isinstance(value, Constant) else held[value] for value in program.results]
            return jnp.broadcast_to(out, (1,))[0]

        return jax.vmap(one, in_axes=-1, out_axes=-1)(*rows)

    return Split(prepare, numbers, terms)


def find_dependents(operations: Sequence[Operation], first: set[int]) -> set[int]:
    """Return all variables that depend on some of the first."""
    found = set(first)
    for operation in operations:
        if any(value in found for value in operation.given if not isinstance(value, Constant)):
            found.update(operation.found)
    return found


def choose_kept(
    program: Program, before: Sequence[Operation], after: Sequence[Operation], of_rows: set[int], wanted: list[int]
) -> tuple[list[int], list[Operation]]:
    """Choose which numbers to keep with a row and which to compute again: each kept one is a register per row."""

    def size(numbers: set[int]) -> int:
        return sum(int(np.prod(program.shapes[number])) for number in numbers)

    def sources(operation: Operation) -> set[int]:
        return {value for value in operation.given if not isinstance(value, Constant) and value in of_rows}

    kept, again = set(wanted), []
    for operation in reversed(before):  # back towards what several are made of
        (number, *more) = operation.found
        if number in kept and not more and operation.primitive.name in CHEAP_OPERATIONS:
            back = (kept - {number}) | sources(operation)
            if size(back) <= size(kept):
                kept = back
                again.append(operation)
    again.reverse()
    for operation in list(again):  # and forth again if nothing else needs what it is made of
        others = [other for other in (*again, *after) if other is not operation]
        alone = sources(operation) & kept - {value for other in others for value in sources(other)}
        if sources(operation) <= kept and size(set(operation.found)) <= size(alone):
            kept = (kept - alone) | set(operation.found)
            again.remove(operation)
    return sorted(kept), again
