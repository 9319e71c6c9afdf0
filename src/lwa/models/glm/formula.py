"""Formulas: `y ~ a + b:c` as a response and its terms, in the notation of Wilkinson and Rogers (1973).

`+` adds terms, `-` takes them away, `a:b` is an interaction, `a*b` is `a + b + a:b`, `a/b` is `a + a:b`, `(a + b)^2`
has all interactions of two. There is an intercept unless `- 1` or `0 +` takes it away.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from lwa.errors import InputError
from lwa.models.glm.expressions import MOST_CHARACTERS, MOST_NESTED, Expression, read_expression

type Term = tuple[str, ...]
"""Names of the factors that a term multiplies; the intercept has none."""

FORMULA_EXAMPLE = "Pass 'y ~ a + b', for example."
MOST_TERMS = 10_000


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
    return Formula(
        text,
        read_expression(strip_braces(response.strip())),
        tuple(kept),
        {name: reader.factors[name] for term in kept for name in term},
        tuple(reader.factors[term[0]] for term in offsets),
    )


def strip_braces(text: str) -> str:
    """Return `{x + 1}` as `x + 1`."""
    return text[1:-1] if text.startswith("{") and text.endswith("}") else text


def tokenize(rest: str, text: str) -> list[Token]:
    """Return the right-hand side in pieces."""
    found, at, compared = [], 0, find_comparisons(rest)
    while at < len(rest):
        if rest[at].isspace():
            at += 1
            continue
        if at in compared:
            found.append(Token("factor", rest[at : compared[at]]))
            at = compared[at]
        elif match := re.compile(r"\*\*|[-+*:/^()]").match(rest, at):
            found.append(Token("^" if match[0] == "**" else match[0], match[0]))
            at = match.end()
        elif match := re.compile(r"\d+").match(rest, at):
            found.append(Token("number", match[0]))
            at = match.end()
        elif match := re.compile(r"[^\W\d]\w*(\s*\()?|\{|`[^`]*`").match(rest, at):
            end = match.end()
            if match[0][-1] in "({":
                end = find_closing(rest, end - 1, text)
            found.append(Token("factor", rest[at:end]))
            at = end
        else:
            raise InputError(
                f"formula={text!r} cannot be read from {rest[at:][:20]!r} on. Columns, + - * : / ^ ( ) and functions "
                "such as log(x) are expected; a comparison stands in brackets, (x > 15), a name with other characters "
                f"between backticks. {FORMULA_EXAMPLE}"
            )
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
            terms = unite(terms, found) if sign == "+" else subtract_terms(terms, found)
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


def subtract_terms(terms: list[Term], gone: list[Term]) -> list[Term]:
    """Return the terms that are not among `gone`."""
    return [term for term in terms if frozenset(term) not in set(map(frozenset, gone))]


def cross_terms(left: list[Term], right: list[Term]) -> list[Term]:
    """Return every term of one with every term of the other."""
    return unite([tuple(dict.fromkeys(one + other)) for one in left for other in right])
