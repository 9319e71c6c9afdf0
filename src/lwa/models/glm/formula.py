"""Formulas: `y ~ a + b:c` as a response and its terms, in the notation of Wilkinson and Rogers (1973).

`+` adds terms, `-` takes them away, `a:b` is an interaction, `a*b` is `a + b + a:b`, `a/b` is `a + a:b`, `(a + b)^2`
has all interactions of two. There is an intercept unless `- 1` or `0 +` takes it away. Expressions of columns, such as
`log(x + 1)` or `x > 15`, are read by Python's parser. A formula is text that may come from anywhere, so it is never
executed: what is not on the short list below is refused when it is read, before there are data.
"""

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.errors import DataError, InputError
from lwa.rows.store.encoding import Level

type Levels = Mapping[str, tuple[Level, ...]]
"""The levels that codes stand for, by column."""
type Values = NDArray[np.float64] | float
"""One number per row, or one for all."""
type Term = tuple[str, ...]
"""Names of the factors that a term multiplies; the intercept has none."""

NO_LEVELS: Levels = {}
ROW_FUNCTIONS: dict[str, Callable[[Values], Values]] = {
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "exp": np.exp, "expm1": np.expm1,
    "sqrt": np.sqrt, "abs": np.abs, "I": lambda values: values,
}  # fmt: skip
"""Functions that may be applied to numbers, row by row."""
LEARNED = {"center": "its mean", "scale": "its mean and sd", "C": "its levels"}
"""Functions that need all rows before they can be applied to one; outermost only."""
OPERATORS: dict[type[ast.operator], Callable[[Values, Values], Values]] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.true_divide, ast.Pow: np.power,
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], Callable[..., NDArray[np.bool_]]] = {
    ast.Gt: np.greater, ast.GtE: np.greater_equal, ast.Lt: np.less, ast.LtE: np.less_equal, ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}  # fmt: skip
"""Comparisons: 1 for rows in which they hold, 0 for others."""
FORMULA_NAMES = ", ".join([*ROW_FUNCTIONS, *LEARNED])
MOST_CHARACTERS = 10_000
MOST_TERMS = 10_000
MOST_NESTED = 100
"""Deeper nesting would exhaust the stack."""
FORMULA_EXAMPLE = "Pass 'y ~ a + b', for example."


@dataclass(frozen=True, eq=False)
class Expression:
    """One number, or one level, per row."""

    text: str  # its name, as Python writes it out
    tree: ast.expr  # without what is learned
    learned: str | None  # "C", "center" or "scale" around it
    quoted: Mapping[str, str]  # columns whose names are not identifiers, by their stand-ins
    reference: Level | None = None  # the level that `C(x, ref=...)` compares others with; else the first

    @property
    def columns(self) -> list[str]:
        """The columns that it reads."""
        return list(dict.fromkeys([*self.computed, *(column for column, _ in self.texts)]))

    @property
    def column(self) -> str | None:
        """The column, if it is a column and nothing else."""
        return self.quoted.get(self.tree.id, self.tree.id) if isinstance(self.tree, ast.Name) else None

    @property
    def texts(self) -> list[tuple[str, str]]:
        """The columns that are compared with a text, and the texts."""
        pairs = [match_text_comparison(node) for node in ast.walk(self.tree) if isinstance(node, ast.Compare)]
        return [(self.quoted.get(pair[0].id, pair[0].id), pair[1]) for pair in pairs if pair is not None]

    @property
    def computed(self) -> list[str]:
        """The columns whose values it uses, beyond whether they equal a text."""
        compared = {id(pair[0]) for node in ast.walk(self.tree) if (pair := match_text_comparison(node)) is not None}
        called = {id(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        names = [node for node in ast.walk(self.tree) if isinstance(node, ast.Name)]
        found = [node.id for node in names if id(node) not in compared | called]
        return list(dict.fromkeys(self.quoted.get(name, name) for name in found))

    def compute(self, columns: Mapping[str, np.ndarray], levels: Levels = NO_LEVELS) -> NDArray[np.float64]:
        """Return one number per row, before anything that is learned; NaN or infinite if it is not defined."""
        size = len(next(iter(columns.values())))
        with np.errstate(all="ignore"):
            values = Evaluation(columns, self.quoted, levels).evaluate(self.tree)
        return np.broadcast_to(np.asarray(values, np.float64), (size,))


def match_text_comparison(node: ast.AST) -> tuple[ast.Name, str] | None:
    """Return the column and the text if the node is `column == 'text'`, `'text' != column` or the like."""
    match node:
        case ast.Compare(left=ast.Name() as name, comparators=[ast.Constant(value=str() as text)]):
            return name, text
        case ast.Compare(left=ast.Constant(value=str() as text), comparators=[ast.Name() as name]):
            return name, text
    return None


def read_expression(text: str) -> Expression:
    """Return an expression from its text; refuse all that is not on the list."""
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
            f"{text!r} in the formula cannot be read. Pass a column's name, between backticks (`my column`) if it "
            "is not a name in Python, or an expression such as log(x + 1)."
        ) from None
    learned = tree.func.id if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) else None
    reference = None
    if learned in LEARNED:
        assert isinstance(tree, ast.Call)
        call = tree
        if learned == "C" and len(tree.args) == 1 and [keyword.arg for keyword in tree.keywords] == ["ref"]:
            reference = read_level(tree.keywords[0].value)
            call = ast.Call(tree.func, tree.args, [])
        require_one_argument(call, learned)
        inner = tree.args[0]
    else:
        learned, inner = None, tree
    check_expression(inner)
    known = ast.unparse(tree)
    for name, column in quoted.items():
        known = known.replace(name, column)
    expression = Expression(known, inner, learned, quoted, reference)
    if not expression.columns:
        raise InputError(f"{text!r} in the formula names no column. Pass a column's name, or leave it out.")
    return expression


def check_expression(node: ast.expr, depth: int = 0) -> None:
    """Refuse all but arithmetic of columns and numbers."""
    if depth > MOST_NESTED:
        raise InputError(f"The formula nests more than {MOST_NESTED} operations. Compute such a column first.")
    match node:
        case ast.Name():
            return
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool) and math.isfinite(value):
            return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            check_expression(left, depth + 1)
            check_expression(right, depth + 1)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            check_expression(operand, depth + 1)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARISONS:
            if match_text_comparison(node) is None:
                check_expression(left, depth + 1)
                check_expression(right, depth + 1)
            elif not isinstance(op, ast.Eq | ast.NotEq):
                raise InputError(f"{ast.unparse(node)!r}: a text is compared by == or !=. Write x == 'some level'.")
        case ast.Compare() if all(type(op) in COMPARISONS for op in node.ops):
            raise InputError(f"{ast.unparse(node)!r} compares more than two. Write I((x > 1) * (x < 3)), for example.")
        case ast.Call(func=ast.Name(id=name)) if name in ROW_FUNCTIONS:
            require_one_argument(node, name)
            check_expression(node.args[0], depth + 1)
        case ast.Call(func=ast.Name(id=name)) if name in LEARNED:
            raise InputError(
                f"{name}(...) stands inside of {ast.unparse(node)!r} or another expression of the formula, but "
                f"{LEARNED[name]} can be learned only of all that it is a part of. Write {name}(...) around the whole."
            )
        case ast.Call(func=ast.Name(id=name)):
            hint = f"Valid: {FORMULA_NAMES}. Compute anything else as a column of the data first."
            raise InputError(f"The formula calls {name!r}, which is not allowed. {hint}")
        case _:
            raise InputError(
                f"{ast.unparse(node)!r} is not part of a formula: columns, numbers, + - * / **, comparisons and "
                f"{FORMULA_NAMES} are. Compute anything else as a column of the data first."
            )


def require_one_argument(call: ast.Call, name: str) -> None:
    """Refuse f(), f(a, b) and f(a, b=c)."""
    if len(call.args) != 1 or call.keywords or isinstance(call.args[0], ast.Starred):
        also = ", or C(x, ref='some level')" if name == "C" else ""
        raise InputError(f"{ast.unparse(call)!r} in the formula: {name} takes one argument. Write {name}(x){also}.")


def read_level(node: ast.expr) -> Level:
    """Return the level that a reference names: a text or a number."""
    match node:
        case ast.Constant(value=str() | int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
    raise InputError(
        f"ref={ast.unparse(node)} in the formula is not a level. Write C(x, ref='some level'), or an unquoted number."
    )


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Evaluates expressions that `check_expression` accepted, in float64."""

    columns: Mapping[str, np.ndarray]
    quoted: Mapping[str, str]
    levels: Levels

    def evaluate(self, node: ast.expr) -> Values:
        """Return one number per row, or one for all."""
        match node:
            case ast.Name(id=name):
                return self.columns[self.quoted.get(name, name)].astype(np.float64)
            case ast.Constant(value=value):
                assert isinstance(value, int | float)
                return float(value)
            case ast.BinOp(left=left, op=op, right=right):
                return OPERATORS[type(op)](self.evaluate(left), self.evaluate(right))
            case ast.UnaryOp(op=op, operand=operand):
                found = self.evaluate(operand)
                return -found if isinstance(op, ast.USub) else found
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                pair = match_text_comparison(node)
                if pair is not None:
                    return COMPARISONS[type(op)](self.is_level(*pair), True).astype(np.float64)
                one, other = self.evaluate(left), self.evaluate(right)
                # A comparison with NaN is not 0: the search for missing values must still find it.
                return np.where(np.isnan(one) | np.isnan(other), np.nan, COMPARISONS[type(op)](one, other))
            case ast.Call(func=ast.Name(id=name), args=[argument]):
                return ROW_FUNCTIONS[name](self.evaluate(argument))
        raise AssertionError(f"{ast.unparse(node)!r} was not checked")

    def is_level(self, name: ast.Name, text: str) -> NDArray[np.bool_]:
        """Return which rows of a column hold this text."""
        column = self.quoted.get(name.id, name.id)
        if column not in self.levels:
            came = f"The formula compares the column {column!r} with the text {text!r}, but it holds numbers"
            raise DataError(f"{came}. Write the number without quotes.")
        return np.array([level == text for level in self.levels[column]], bool)[self.columns[column]]


@dataclass(frozen=True, eq=False)
class Formula:
    """A response, and the terms and offsets that explain it."""

    text: str
    response: Expression
    terms: tuple[Term, ...]  # by their number of factors, then in the order in which they are written
    factors: dict[str, Expression]
    offsets: tuple[Expression, ...]

    @property
    def intercept(self) -> bool:
        """Whether the formula has an intercept."""
        return () in self.terms


class Token(NamedTuple):
    """A piece of a formula."""

    kind: str  # "factor", "number", "end", or an operator itself
    text: str


def read_formula(text: object) -> Formula:
    """Return a formula from its text."""
    if not isinstance(text, str):
        raise InputError(f"formula={text!r} is not a text. {FORMULA_EXAMPLE}")
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"The formula has {len(text)} characters; at most {MOST_CHARACTERS} are expected.")
    at = blank_quotes(text).find("~")
    response, tilde, rest = (text[:at], "~", text[at + 1 :]) if at >= 0 else (text, "", "")
    if not tilde or "~" in blank_quotes(rest) or not response.strip() or not rest.strip():
        raise InputError(f"formula={text!r} needs one '~' with something on either side. {FORMULA_EXAMPLE}")
    reader = Reader(text, tokenize(rest, text))
    terms = reader.read_sum([()])
    reader.expect("end")
    offsets = [term for term in terms if any(name.startswith("offset(") for name in term)]
    if any(len(term) > 1 for term in offsets):
        raise InputError(f"formula={text!r}: an offset(...) stands by itself. Write '+ offset(log(exposure))'.")
    kept = sorted((term for term in terms if term not in offsets), key=len)
    if not kept:
        raise InputError(f"formula={text!r} has no term and no intercept, so nothing to infer. {FORMULA_EXAMPLE}")
    factors = {name: reader.factors[name] for term in kept for name in term}
    explained = read_expression(strip_braces(response.strip()))
    return Formula(text, explained, tuple(kept), factors, tuple(reader.factors[term[0]] for term in offsets))


def strip_braces(text: str) -> str:
    """Return `{x + 1}` as `x + 1`."""
    return text[1:-1] if text.startswith("{") and text.endswith("}") else text


def tokenize(rest: str, text: str) -> list[Token]:
    """Return the right-hand side in pieces."""
    found, at, compared = [], 0, find_comparisons(rest)
    while at < len(rest):
        end = at + 1
        if at in compared:
            end = compared[at]
            found.append(Token("factor", rest[at:end]))
        elif match := re.compile(r"\*\*|[-+*:/^()]").match(rest, at):
            end = match.end()
            found.append(Token("^" if match[0] == "**" else match[0], match[0]))
        elif match := re.compile(r"\d+").match(rest, at):
            end = match.end()
            found.append(Token("number", match[0]))
        elif match := re.compile(r"[^\W\d]\w*(\s*\()?|\{|`[^`]*`").match(rest, at):
            end = find_closing(rest, match.end() - 1, text) if match[0][-1] in "({" else match.end()
            found.append(Token("factor", rest[at:end]))
        elif not rest[at].isspace():
            raise InputError(
                f"formula={text!r} cannot be read from {rest[at:][:20]!r} on. Columns, + - * : / ^ ( ) and functions "
                "such as log(x) are expected; a comparison stands in brackets, (x > 15), a name with other characters "
                f"between backticks. {FORMULA_EXAMPLE}"
            )
        at = end
    return [*found, Token("end", "its end")]


def find_closing(rest: str, at: int, text: str) -> int:
    """Return the place after the bracket that closes the one at `at`."""
    opened, closed = rest[at], ")" if rest[at] == "(" else "}"
    depth, plain = 0, blank_quotes(rest)
    for i in range(at, len(rest)):
        depth += (plain[i] == opened) - (plain[i] == closed)
        if depth == 0:
            return i + 1
    raise InputError(f"formula={text!r} has a {opened!r} that is never closed. Add the missing {closed!r}.")


def blank_quotes(text: str) -> str:
    """Return the text with blanks in place of what stands between backticks or quotes."""
    return re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"", lambda found: " " * len(found[0]), text)


def find_comparisons(rest: str) -> dict[int, int]:
    """Return where brackets begin and end that hold a comparison, not a sum of terms."""
    plain = blank_quotes(rest)
    opened, compared, found = list[int](), set[int](), dict[int, int]()
    for match in re.finditer(r"[({)}<>]|[=!]=", plain):
        if match[0] in "({":
            opened.append(match.start())
        elif match[0] in ")}" and opened:
            start = opened.pop()
            if start in compared and plain[start] == "(":
                found[start] = match.end()
        elif opened:
            compared.add(opened[-1])
    return found


class Reader:
    """Reads tokens from left to right, by the rank of the operators: + and -, then * and /, then :, then ^."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self.text, self.tokens, self.at, self.depth = text, tokens, 0, 0
        self.factors: dict[str, Expression] = {}

    def read_sum(self, terms: list[Term]) -> list[Term]:
        """Return `terms` with terms added and taken away."""
        sign = self.take("+", "-") or "+"
        while True:
            if self.tokens[self.at] == Token("number", "0"):
                self.at += 1
                sign = "-" if sign == "+" else "+"
                found: list[Term] = [()]
            else:
                found = self.read_product()
            gone = set(map(frozenset, found)) if sign == "-" else set()
            terms = [one for one in unite(terms, found) if frozenset(one) not in gone]
            if not (after := self.take("+", "-")):
                return terms
            sign = after

    def read_product(self) -> list[Term]:
        """Return a + b + a:b for a*b, and a + a:b for a/b."""
        left = self.read_interaction()
        while operator := self.take("*", "/"):
            right = self.read_interaction()
            if operator == "*":
                left = self.require_few(unite(left, right, cross_terms(left, right)))
            else:
                whole: Term = tuple(dict.fromkeys(name for term in left for name in term))
                left = self.require_few(unite(left, cross_terms([whole], right)))
        return left

    def read_interaction(self) -> list[Term]:
        """Return the terms of a:b."""
        left = self.read_power()
        while self.take(":"):
            left = self.require_few(cross_terms(left, self.read_power()))
        return left

    def read_power(self) -> list[Term]:
        """Return a + b + a:b for (a + b)^2: itself, and all interactions of two."""
        base = self.read_atom()
        found = base
        while self.take("^"):
            token = self.expect("number")
            times = int(token.text)
            if not 1 <= times <= 10:
                raise InputError(f"formula={self.text!r}: the power {times} must be between 1 and 10. Write (a + b)^2.")
            for _ in range(times - 1):
                found = self.require_few(unite(found, cross_terms(found, base)))
        return found

    def read_atom(self) -> list[Term]:
        """Return the terms of a column, an expression, 1, or a sum in brackets."""
        if self.take("("):
            self.depth += 1
            if self.depth > MOST_NESTED:
                raise InputError(f"The formula nests more than {MOST_NESTED} brackets. Write it without them.")
            found = self.read_sum([])
            self.expect(")")
            self.depth -= 1
            return found
        token = self.tokens[self.at]
        if token.kind == "number":
            if token.text != "1":
                came = f"formula={self.text!r}: {token.text} is not a term"
                raise InputError(f"{came}; 0 and 1 are. Write I({token.text} * x).")
            self.at += 1
            return [()]
        self.expect("factor")
        is_offset = re.fullmatch(r"offset\s*\((.*)\)", token.text, re.S)
        expression = read_expression(is_offset[1] if is_offset else strip_braces(token.text))
        name = f"offset({expression.text})" if is_offset else expression.text
        if is_offset and expression.learned == "C":
            raise InputError(f"formula={self.text!r}: an offset is a number. Write '+ offset(log(exposure))'.")
        self.factors.setdefault(name, expression)
        return [(name,)]

    def take(self, *kinds: str) -> str | None:
        """Take the next token if it is one of these."""
        kind = self.tokens[self.at].kind
        if kind not in kinds:
            return None
        self.at += 1
        return kind

    def expect(self, kind: str) -> Token:
        """Take the next token, which must be of this kind."""
        token = self.tokens[self.at]
        if token.kind != kind:
            wanted = {"factor": "a column", "end": "an operator", "number": "a whole number"}.get(kind, repr(kind))
            raise InputError(f"formula={self.text!r} has {token.text!r} where {wanted} is expected. {FORMULA_EXAMPLE}")
        self.at += 1
        return token

    def require_few(self, terms: list[Term]) -> list[Term]:
        """Refuse a formula with too many terms."""
        if len(terms) > MOST_TERMS:
            raise InputError(f"formula={self.text!r} has more than {MOST_TERMS} terms. Write out those that you mean.")
        return terms


def unite(*several: list[Term]) -> list[Term]:
    """Return all terms once, in the order in which they come; a:b and b:a are the same."""
    found: dict[frozenset[str], Term] = {}
    for terms in several:
        for term in terms:
            found.setdefault(frozenset(term), term)
    return list(found.values())


def cross_terms(left: list[Term], right: list[Term]) -> list[Term]:
    """Return every term of one with every term of the other."""
    return unite([tuple(dict.fromkeys(one + other)) for one in left for other in right])
