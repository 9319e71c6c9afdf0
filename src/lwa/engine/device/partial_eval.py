"""What a row's term needs of the row alone, found once for all rows, and what is left for every θ.

The second-order remainder of a row, for one, has its value, slope and bend at θ̂ in it, which no θ changes. The program
of a row's term is taken apart: what depends on the row and on θ̂, but not on θ, is computed when rows are put on the
device, and its results travel as if they were the row's own numbers.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Literal  # type: ignore[attr-defined]

from lwa.targets.target import Target

CHEAP = {
    "neg", "add", "sub", "mul", "select_n", "eq", "ne", "lt", "le", "gt", "ge", "max", "min", "abs", "and", "or", "not",
    "convert_element_type", "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "sign",
    "is_finite", "copy", "rev",
}  # fmt: skip
"""What may rather be computed again for each θ than be kept with each row."""
CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"}


class Split(NamedTuple):
    """A row's term in three parts."""

    prepare: Callable[[Any, Any], list[Array]]  # target, rows (m, *shape) -> leaves (m, *shape): what to read of each
    numbers: Callable[[Array, Any], list[Array]]  # θ, target -> what depends on no row
    terms: Callable[[list[Array], list[Array]], Array]  # those numbers, those leaves with the rows last -> (n,)


class Operation(NamedTuple):
    """One step of a program without calls: variables are numbered."""

    primitive: Any
    params: dict[str, Any]
    given: list[Any]  # numbers of variables, or constants
    found: list[int]


class Program(NamedTuple):
    """A program without calls."""

    operations: list[Operation]
    arguments: list[int]
    results: list[Any]
    shapes: dict[int, Any]  # of each variable


class Constant(NamedTuple):
    """A value that is known."""

    value: Any


def without_calls(program: ClosedJaxpr) -> Program:
    """The program with every program that it calls in the place of the call."""
    operations: list[Operation] = []
    shapes: dict[int, Any] = {}
    seen: dict[Any, list[int]] = {}  # what has been computed before, by what it was computed from

    def numbered(aval: Any) -> int:
        shapes[len(shapes)] = aval
        return len(shapes) - 1

    def enter(inner: ClosedJaxpr, given: Sequence[Any]) -> list[Any]:
        held: dict[Any, Any] = dict(zip(inner.jaxpr.invars, given, strict=True))
        held |= {var: Constant(value) for var, value in zip(inner.jaxpr.constvars, inner.consts, strict=True)}

        def read(atom: Any) -> Any:
            return Constant(atom.val) if isinstance(atom, Literal) else held[atom]

        for equation in inner.jaxpr.eqns:
            values = [read(atom) for atom in equation.invars]
            if equation.primitive.name in CALLS:
                found = enter(called(equation), values)
            elif all(isinstance(value, Constant) for value in values):
                found = known_already(equation, values)
            elif (name := name_of(equation, values)) in seen:
                found = seen[name]
            else:
                found = seen[name] = [numbered(var.aval) for var in equation.outvars]
                operations.append(Operation(equation.primitive, equation.params, values, found))
            held.update(zip(equation.outvars, found, strict=True))
        return [read(atom) for atom in inner.jaxpr.outvars]

    arguments = [numbered(var.aval) for var in program.jaxpr.invars]
    return Program(operations, arguments, enter(program, arguments), shapes)


def known_already(equation: Any, values: Sequence[Constant]) -> list[Constant]:
    """What an operation finds that is given constants alone."""
    with jax.ensure_compile_time_eval():
        found = equation.primitive.bind(*(jnp.asarray(value.value) for value in values), **equation.params)
    return [Constant(np.asarray(one)) for one in (found if equation.primitive.multiple_results else [found])]


def name_of(equation: Any, values: Sequence[Any]) -> Any:
    """An operation and what it is given: where two have the same, so is what they find."""
    given = tuple(constant_name(v.value) if isinstance(v, Constant) else v for v in values)
    return equation.primitive.name, str(sorted(equation.params.items(), key=lambda item: item[0])), given


def constant_name(value: Any) -> Any:
    """What makes two constants the same."""
    if isinstance(value, jax.core.Tracer):
        return id(value)
    held = np.asarray(value)
    return str(held.dtype), held.shape, held.tobytes()


def called(equation: Any) -> ClosedJaxpr:
    """The program that a call calls."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if (inner := equation.params.get(name)) is not None:
            return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
    raise TypeError(f"{equation.primitive.name} calls no program")


def perform(operations: Sequence[Operation], held: dict[int, Any]) -> None:
    """Operations on what is held; what they find is held too."""
    for operation in operations:
        given = [value.value if isinstance(value, Constant) else held[value] for value in operation.given]
        found = operation.primitive.bind(*map(jnp.asarray, given), **operation.params)
        held.update(zip(operation.found, found if operation.primitive.multiple_results else [found], strict=True))


def split_of(target: Target, theta: Any, one_row: Any) -> Split:
    """The split of a target's row terms; the same object for the same model and shapes: nothing is traced again.

    `one_row` has the rows on the last axis, one of them.
    """
    leaves, tree = jax.tree.flatten((theta, target, one_row))
    return _split(tree, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves))


@cache
def _split(tree: Any, shapes: tuple[tuple[tuple[int, ...], Any], ...]) -> Split:
    theta, target, one_row = jax.tree.unflatten(tree, [shaped(*shape) for shape in shapes])

    def row_terms(theta: Array, target: Target, rows: Any) -> Array:
        return target.row_terms(theta, rows, None)

    return split_by_theta(row_terms, theta, target, one_row)


def shaped(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of which nothing but its shape and type is known."""
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def split_by_theta(row_terms: Callable[[Array, Any, Any], Array], theta: Array, target: Any, one_row: Any) -> Split:
    """A row's term, `(theta, target, rows) -> (n,)` with the rows last, by what depends on θ, on the row and on both.

    Arguments have the right shapes and types. Rows are taken one at a time, since a term depends on no other.
    """
    program = without_calls(jax.make_jaxpr(row_terms)(theta, target, one_row))
    first = len(program.arguments) - len(jax.tree.leaves(one_row))
    given, of_row = program.arguments[:first], program.arguments[first:]
    by_theta, by_row = depending(program.operations, {given[0]}), depending(program.operations, set(of_row))
    apart = [operation for operation in program.operations if not set(operation.found) & by_row]
    before = [op for op in program.operations if set(op.found) & by_row and not set(op.found) & by_theta]
    after = [op for op in program.operations if set(op.found) & by_row & by_theta]
    wanted = [value for operation in after for value in operation.given] + program.results
    variables = dict.fromkeys(value for value in wanted if not isinstance(value, Constant))
    kept, again = fewest(program, before, after, by_row, [v for v in variables if v in by_row and v not in by_theta])
    wanted += [value for operation in again for value in operation.given]
    variables = dict.fromkeys(value for value in wanted if not isinstance(value, Constant))
    asked = [number for number in variables if number not in by_row]

    def prepare(target: Any, rows: Any) -> list[Array]:
        def one(*leaves: Array) -> list[Array]:
            held = dict(zip(given[1:], jax.tree.leaves(target), strict=True))
            held |= dict(zip(of_row, (leaf[..., None] for leaf in leaves), strict=True))
            perform([op for op in apart if not set(op.found) & by_theta], held)
            perform(before, held)
            return [held[number] for number in kept]

        return jax.vmap(one)(*jax.tree.leaves(rows))

    def numbers(theta: Array, target: Any) -> list[Array]:
        held = dict(zip(given, [theta, *jax.tree.leaves(target)], strict=True))
        perform(apart, held)
        return [held[number] for number in asked]

    def terms(numbers: list[Array], rows: list[Array]) -> Array:
        def one(*leaves: Array) -> Array:
            held = {**dict(zip(asked, numbers, strict=True)), **dict(zip(kept, leaves, strict=True))}
            perform([*again, *after], held)
            (out,) = [value.value if isinstance(value, Constant) else held[value] for value in program.results]
            return jnp.broadcast_to(out, (1,))[0]

        return jax.vmap(one, in_axes=-1, out_axes=-1)(*rows)

    return Split(prepare, numbers, terms)


def depending(operations: Sequence[Operation], first: set[int]) -> set[int]:
    """All variables that depend on some."""
    found = set(first)
    for operation in operations:
        if any(value in found for value in operation.given if not isinstance(value, Constant)):
            found.update(operation.found)
    return found


def fewest(
    program: Program, before: Sequence[Operation], after: Sequence[Operation], of_rows: set[int], wanted: list[int]
) -> tuple[list[int], list[Operation]]:
    """Which numbers to keep with a row, and which to compute again from them: each kept one is a register a row."""

    def size(numbers: set[int]) -> int:
        return sum(int(np.prod(program.shapes[number].shape)) for number in numbers)

    def sources(operation: Operation) -> set[int]:
        return {value for value in operation.given if not isinstance(value, Constant) and value in of_rows}

    kept, again = set(wanted), []
    for operation in reversed(before):  # back towards what several are made of
        (number, *more) = operation.found
        if number in kept and not more and operation.primitive.name in CHEAP:
            back = (kept - {number}) | sources(operation)
            if size(back) <= size(kept):
                kept = back
                again.append(operation)
    again.reverse()
    for operation in list(again):  # and forth again where nothing else needs what it is made of
        others = [other for other in (*again, *after) if other is not operation]
        alone = sources(operation) & kept - {value for other in others for value in sources(other)}
        if sources(operation) <= kept and size(set(operation.found)) <= size(alone):
            kept = (kept - alone) | set(operation.found)
            again.remove(operation)
    return sorted(kept), again
