"""Expressions in columns, such as `log(x + 1)`: read by Python's own parser, evaluated by nothing but this file.

A formula is text that may come from anywhere. So it is never run: what is not on the short list below is refused when
it is read, before there are data.
"""

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lwa.errors import InputError

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "exp": np.exp,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "I": lambda values: values,
}
"""What may be applied to numbers, row by row."""
LEARNED = {"center": "its mean", "scale": "its mean and sd", "C": "its levels"}
"""What needs to know all rows before it can be applied to one; outermost only."""
OPERATORS: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
    ast.Pow: np.power,
}
NAMES = ", ".join([*FUNCTIONS, *LEARNED])
MOST_CHARACTERS = 10_000
"""A longer formula is no formula."""
MOST_NESTED = 100
"""Deeper ones would exhaust the stack of whoever reads them."""


@dataclass(frozen=True, eq=False)
class Expression:
    """One number, or one level, a row."""

    text: str  # as it is written out, and known by
    tree: ast.expr  # without what is learned
    learned: str | None  # "C", "center" or "scale" around it
    quoted: Mapping[str, str]  # columns whose names are no names in Python, by their stand-ins

    @property
    def columns(self) -> list[str]:
        """The columns that it needs."""
        called = {id(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        found = [node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name) and id(node) not in called]
        return list(dict.fromkeys(self.quoted.get(name, name) for name in found))

    @property
    def column(self) -> str | None:
        """The column, where it is one and nothing else."""
        return self.quoted.get(self.tree.id, self.tree.id) if isinstance(self.tree, ast.Name) else None

    def numbers(self, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """One number a row, before anything that is learned; NaN or infinite where it is not defined."""
        size = len(next(iter(columns.values())))
        with np.errstate(all="ignore"):
            values = evaluate(self.tree, columns, self.quoted)
        return np.broadcast_to(np.asarray(values, np.float64), (size,))


def read_expression(text: str) -> Expression:
    """An expression from its text; refuses all that is not on the list."""
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"The formula has {len(text)} characters; at most {MOST_CHARACTERS} are expected.")
    quoted: dict[str, str] = {}

    def stand_in(found: re.Match[str]) -> str:
        name = f"_quoted_{len(quoted)}_"
        quoted[name] = found[1]
        return name

    plain = re.sub("`([^`]*)`", stand_in, text).strip()
    try:
        tree = ast.parse(plain, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InputError(
            f"{text!r} in the formula cannot be read. Pass a column's name, between backticks (`my column`) where it "
            "is no name in Python, or an expression such as log(x + 1)."
        ) from None
    learned = tree.func.id if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) else None
    if learned in LEARNED:
        assert isinstance(tree, ast.Call)
        require_one_argument(tree, learned)
        inner = tree.args[0]
    else:
        learned, inner = None, tree
    check(inner)
    known = ast.unparse(tree)
    for name, column in quoted.items():
        known = known.replace(name, column)
    expression = Expression(known, inner, learned, quoted)
    if not expression.columns:
        raise InputError(f"{text!r} in the formula names no column. Pass a column's name, or leave it out.")
    return expression


def check(node: ast.expr, depth: int = 0) -> None:
    """Refuse what is not arithmetic of columns and numbers."""
    if depth > MOST_NESTED:
        raise InputError(
            f"The formula nests more than {MOST_NESTED} operations. Compute such a column of the data first."
        )
    match node:
        case ast.Name():
            return
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool) and math.isfinite(value):
            return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            check(left, depth + 1)
            check(right, depth + 1)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            check(operand, depth + 1)
        case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS:
            require_one_argument(node, name)
            check(node.args[0], depth + 1)
        case ast.Call(func=ast.Name(id=name)) if name in LEARNED:
            raise InputError(
                f"{name}(...) stands inside of {ast.unparse(node)!r} or another expression of the formula, but "
                f"{LEARNED[name]} can be learned only of all that it is a part of. Write {name}(...) around the whole."
            )
        case ast.Call(func=ast.Name(id=name)):
            raise InputError(
                f"The formula calls {name!r}, which it may not. Valid: {NAMES}. Compute anything else as a column of "
                "the data first."
            )
        case _:
            raise InputError(
                f"{ast.unparse(node)!r} is no part of a formula: columns, numbers, + - * / ** and {NAMES} are. "
                "Compute anything else as a column of the data first."
            )


def require_one_argument(call: ast.Call, name: str) -> None:
    """Refuse f(), f(a, b) and f(a, b=c)."""
    if len(call.args) != 1 or call.keywords or isinstance(call.args[0], ast.Starred):
        raise InputError(f"{ast.unparse(call)!r} in the formula: {name} takes one argument. Write {name}(x).")


def evaluate(node: ast.expr, columns: Mapping[str, NDArray[Any]], quoted: Mapping[str, str]) -> Any:
    """The value of what `check` let through, in float64."""
    match node:
        case ast.Name(id=name):
            return columns[quoted.get(name, name)].astype(np.float64)
        case ast.Constant(value=value):
            assert isinstance(value, int | float)
            return float(value)
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](evaluate(left, columns, quoted), evaluate(right, columns, quoted))
        case ast.UnaryOp(op=op, operand=operand):
            value = evaluate(operand, columns, quoted)
            return -value if isinstance(op, ast.USub) else value
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            return FUNCTIONS[name](evaluate(argument, columns, quoted))
    raise AssertionError(f"{ast.unparse(node)!r} was not checked")
