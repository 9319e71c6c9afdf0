"""What a regression learns of all rows: the same whoever computes pieces, and as if there were only one."""

import cloudpickle
import numpy as np
import pytest

import lwa
from lwa.errors import DataError
from lwa.executors import Serial
from lwa.models.glm import learning
from lwa.rows import passes

rng = np.random.default_rng(5)
N = 300
TREND = np.linspace(0, 50, N)  # the means of pieces are far from each other
DATA = {
    "x": TREND + rng.normal(size=N),
    "w": rng.uniform(0.5, 2, N),
    "k": rng.integers(0, 12, N),
    "g": rng.choice(["a", "b", "c"], N),
    "y": rng.poisson(3, N),
    "z": rng.normal(size=N) - TREND,
}
FORMULAS = [
    ("y ~ scale(x) + center(w):g + C(k)", {"offset": "log(w)", "weights": "w"}),
    ("y ~ 0 + x + g*z", {}),
    ("y ~ C(k):g + x", {}),
]


class Shipping:
    """Sends all pieces of work through bytes, the last first."""

    workers = 2

    def map(self, work, pieces, near=None):
        found = [cloudpickle.loads(cloudpickle.dumps((work, piece))) for piece in reversed(pieces)]
        yield from reversed([work(piece) for work, piece in found])


@pytest.fixture
def small(monkeypatch):
    """Pieces of 16 rows, in blocks of eight."""
    monkeypatch.setattr(passes, "LEAST_PIECE_ROWS", 16)
    monkeypatch.setattr(learning, "SCAN_ROWS", 8)


def facts_of(bound):
    facts = bound.facts
    moments = [facts.y, facts.trials, facts.offset]
    numbers = [*facts.mean, *(sd for sd in facts.block_sd if sd is not None)]
    return np.array([facts.rows, *numbers, *(part for one in moments for part in (one.count, one.mean, one.squares))])


@pytest.mark.parametrize(("formula", "options"), FORMULAS)
def test_pieces_are_put_together_to_what_one_pass_finds(formula, options, monkeypatch):
    glm = lwa.glm(formula, "poisson", **options)
    whole = glm.bind(DATA)
    monkeypatch.setattr(passes, "LEAST_PIECE_ROWS", 16)
    in_pieces = glm.bind(DATA)
    assert len(passes.cut_pieces(in_pieces.rows)) == 19
    assert in_pieces.names == whole.names
    assert in_pieces.levels == whole.levels
    np.testing.assert_allclose(facts_of(in_pieces), facts_of(whole), rtol=1e-12, atol=1e-12)
    for text, moments in whole.rows.recipe.learned.moments.items():
        np.testing.assert_allclose(in_pieces.rows.recipe.learned.moments[text], moments, rtol=1e-13)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("executor", [Serial(1), Serial(3), Shipping()], ids=["one", "three", "shipped"])
@pytest.mark.parametrize(("formula", "options"), FORMULAS)
def test_whoever_computes_finds_the_same_bits(formula, options, executor):
    glm = lwa.glm(formula, "poisson", **options)
    here, there = glm.bind(DATA), glm.bind(DATA, executor=executor)
    assert facts_of(here).tobytes() == facts_of(there).tobytes()
    mine, theirs = here.rows.recipe.learned, there.rows.recipe.learned
    assert (mine.levels, mine.moments) == (theirs.levels, theirs.moments)
    assert here.described == there.described


def test_products_of_pieces_are_those_of_all_rows(monkeypatch):
    """Σ x xᵀ is never seen outside: only whether columns span others."""
    joined = []
    monkeypatch.setattr(learning.ColumnSums, "require_full_rank", lambda self: joined.append(self))
    for aligned in (2**16, 16):
        monkeypatch.setattr(passes, "LEAST_PIECE_ROWS", aligned)
        lwa.glm("y ~ x + z + C(k) + g:x", "poisson").bind(DATA)
    whole, pieces = joined
    spread = [one.products / one.count - np.outer(one.total, one.total) / one.count**2 for one in joined]
    np.testing.assert_allclose(spread[1], spread[0], rtol=1e-9, atol=1e-11)
    assert whole.count == pieces.count == N


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": (200, -1), "x": (3, np.nan)}, r"'x' has 1, the first in row 3 \(nan\)"),
        ({"x": ([40, 41, 170], np.inf)}, r"'x' has 3, the first in row 40 \(inf\)"),
        ({"y": ([133, 250], -1)}, r"'y' has 2, the first in row 133 \(-1\)"),
    ],
)
def test_rows_are_numbered_through_all_pieces(change, message):
    data = {name: values.copy() for name, values in DATA.items()}
    for name, (where, value) in change.items():
        data[name][where] = value
    for executor in (None, Shipping()):
        with pytest.raises(DataError, match=message):
            lwa.glm("y ~ x + z", "poisson").bind(data, executor=executor)


@pytest.mark.usefixtures("small")
def test_too_many_levels_in_all_pieces_together(monkeypatch):
    monkeypatch.setattr(learning, "MOST_LEVELS", 20)
    lwa.glm("y ~ C(k)", "poisson").bind(DATA)
    with pytest.raises(DataError, match=r"'C\(n\)' has more than 20 levels"):
        lwa.glm("y ~ C(n)", "poisson").bind(DATA | {"n": np.arange(N) // 10})
