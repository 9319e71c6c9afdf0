"""Parts of a page, each against what it should be by definition: curves, numbers, rows, the call."""

import inspect
from itertools import product

import numpy as np
import pytest

import lwa
from lwa.result.report import curves
from lwa.result.report.data import collect_data
from lwa.result.report.markup import Markup, join_markup, tag
from lwa.result.report.numbers import count_decimals, format_fixed, format_share, format_short, place_ticks
from lwa.result.report.parameters import group_by_scale
from lwa.result.report.reproduce import RECORDED_DEFAULTS, write_call, write_setting
from lwa.result.report.subsets import expected_distinct_rows
from lwa.subsets.bandwidth import RANDOM_SUBSETS
from tests.result.report.made import SETTINGS, fit, repeated
from tests.support import MODEL, Y, run

# Markup


def test_whatever_is_no_markup_is_escaped():
    assert tag("p", "<b>", Markup("<i></i>"), class_='"') == '<p class="&quot;">&lt;b&gt;<i></i></p>'
    assert tag("a", 1, None, href=None, hidden=True, data_x=0) == '<a hidden data-x="0">1</a>'
    assert join_markup(tag("i") + "<b>") == "&lt;i&gt;&lt;/i&gt;&lt;b&gt;"  # no longer markup: escaped as a whole


# Numbers


def test_numbers():
    assert count_decimals(0.123, 3) == 3
    assert count_decimals(123.0, 3) == 0
    assert count_decimals(0.0, 3) == count_decimals(float("nan"), 3) == 3
    assert format_fixed(-0.0, 2) == "0.00"
    assert format_fixed(1.23456e9, 0) == "1.2346e+09"
    assert format_fixed(float("nan"), 2) == "nan"
    assert format_short(12345.6) == "12,346"
    assert format_short(0.012345) == "0.0123"
    assert format_share(0.25) == "25 %"


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.7, 12.1), (1e-5, 3e-5), (999.0, 1001.0), (-2e6, 5e6)])
def test_ticks_are_round_and_inside(low, high):
    marks = place_ticks(low, high)
    assert 1 <= len(marks) <= 5
    assert len({words for _, words in marks}) == len(marks)
    for at, words in marks:
        assert low - 1e-12 <= at <= high + 1e-12
        assert float(words) == pytest.approx(at, rel=1e-4, abs=1e-12)
    assert place_ticks(1.0, 1.0) == []


# Curves


def test_a_density_follows_its_draws():
    rng = np.random.default_rng(0)
    found = curves.estimate_densities(rng.normal(2.0, 0.5, (4, 20_000)))
    expected = np.exp(-0.5 * ((found.places - 2.0) / 0.5) ** 2)
    area = expected.sum()
    # Of n draws with bandwidth h sds, the estimate at the top has relative sd (n h √2)^-½ and bias -h²/2; at four sds:
    h = 0.9 * 80_000**-0.2
    for curve, n in [(found.pooled, 80_000), *((chain, 20_000) for chain in found.chains)]:
        allowed = 4 * (n * h * np.sqrt(2)) ** -0.5 + h**2 / 2 + 2 * curves.TAIL_LEFT_OUT
        assert np.abs(curve * area / curve.sum() - expected).max() < allowed
    assert found.chains.max() <= 1.0


def test_a_density_at_a_boundary_stays_up():
    found = curves.estimate_densities(np.random.default_rng(0).exponential(size=(2, 20_000)))
    assert found.low >= 0
    assert found.pooled[0] == pytest.approx(found.pooled.max(), abs=0.05)


def test_one_outlier_does_not_flatten_a_picture():
    values = np.random.default_rng(0).normal(size=(4, 1000))
    values[0, 0] = 1e6
    assert curves.find_bounds(values)[1] < 10
    assert curves.find_bounds(np.ones((2, 5))) is None
    assert curves.find_bounds(np.full((2, 5), np.nan)) is None


def test_ranks_of_chains_that_agree_are_level():
    values = np.arange(4000.0).reshape(1000, 4).T  # chains take turns
    np.testing.assert_allclose(curves.count_ranks(values), 1.0)
    apart = curves.count_ranks(np.arange(400.0).reshape(4, 100))
    np.testing.assert_allclose(apart.mean(0), 1.0)
    np.testing.assert_allclose(apart.mean(1), 1.0)
    assert apart.max() == 4.0


def test_ranks_do_not_favour_a_chain_where_draws_are_equal():
    counts = curves.count_ranks(np.tile(np.repeat(np.arange(10.0), 10), (3, 1)))
    assert (counts == counts[0]).all()


def test_a_trace_shows_every_extreme():
    chain = np.random.default_rng(0).normal(size=5000)
    when, where = curves.thin_trace(chain)
    assert len(when) == len(where) == 2 * curves.TRACE_COLUMNS
    assert (where.min(), where.max()) == (chain.min(), chain.max())
    assert (np.diff(when) >= 0).all()
    assert curves.thin_trace(chain[:50])[1].tolist() == chain[:50].tolist()


def test_autocorrelation_by_definition():
    values = np.random.default_rng(0).normal(size=(2, 100)).cumsum(1)
    found = curves.autocorrelation(values)
    assert len(found) == curves.LAGS + 1
    for lag in (0, 1, 7, 40):
        each = [(c[: len(c) - lag] * c[lag:]).sum() / (c * c).sum() for c in (chain - chain.mean() for chain in values)]
        assert found[lag] == pytest.approx(np.mean(each), abs=1e-12)
    assert curves.autocorrelation(np.ones((2, 10))).size == 0


# Forests


def test_parameters_of_one_scale_share_an_axis():
    low = np.array([0.0, 1.0, 2.0, 1e5, 1.1e5])
    high = low + np.array([1.0, 1.0, 1.0, 1e4, 1e4])
    assert [list(some) for some in group_by_scale(low, high)] == [[0, 1, 2], [3, 4]]
    assert [len(some) for some in group_by_scale(np.zeros(60), np.ones(60))] == [25, 25, 10]
    broken = np.array([0.0, np.nan, 0.0])
    assert [i for some in group_by_scale(broken, broken + 1) for i in some] == [0, 1, 2]


# Rows


@pytest.mark.parametrize(("N", "n", "chains", "renewals"), [(4, 1, 1, 2), (5, 2, 1, 0), (3, 1, 2, 1), (4, 2, 1, 1)])
def test_distinct_rows_by_enumeration(N, n, chains, renewals):
    """Every chain's first n rows are distinct; the n × renewals that come in are drawn one by one."""
    firsts = [set(first) for first in product(range(N), repeat=n) if len(set(first)) == n]
    later = list(product(range(N), repeat=n * renewals))
    one = [first | set(rows) for first, rows in product(firsts, later)]
    seen = [len(set.union(*some)) for some in product(one, repeat=chains)]
    assert expected_distinct_rows(N, n, chains, renewals) == pytest.approx(np.mean(seen))


def test_distinct_rows_at_the_ends():
    assert expected_distinct_rows(100, 100, 4, 3.0) == 100
    assert expected_distinct_rows(10**9, 1000, 4, 0.0) == pytest.approx(4000, abs=0.01)
    assert expected_distinct_rows(1000, 10, 4, 1e6) == pytest.approx(1000)


def test_distances_of_random_subsets():
    n, N = 20, len(Y)
    sd = np.sqrt((1 - n / N) / n * N / (N - 1))  # of S̄ - s_N, S in units of its spread
    mean, error = np.sqrt(2 / np.pi) * sd, np.sqrt(1 - 2 / np.pi) * sd / np.sqrt(RANDOM_SUBSETS)
    assert run(thinning=1).attributes["random_subset_distance"] == pytest.approx(mean, abs=4 * error)
    assert run(thinning=1, target="calibrated").attributes["random_subset_distance"] is None


# The call


def test_defaults_are_those_of_sample():
    given = inspect.signature(lwa.sample).parameters
    rivals = inspect.signature(lwa.rivals.sample).parameters
    for name, record in RECORDED_DEFAULTS.items():
        if name not in ("budget", "summary", "subset_weight"):  # recorded as objects
            assert given[name].default == record
        if name in rivals and name != "budget":
            assert rivals[name].default == record


@pytest.mark.parametrize(
    ("name", "record", "expected"),
    [
        ("subset_move", "Swap(k=3, every=1)", "lwa.subsets.Swap(k=3, every=1)"),
        ("subset_move", "Window(lead_in=auto, every=1)", "lwa.subsets.Window(lead_in='auto', every=1)"),
        ("kernel", "Autoregressive(rho=0.0, df=inf)", "lwa.kernels.Autoregressive(rho=0.0, df=float('inf'))"),
        ("kernel", "Blockwise(blocks=(('mu',), ('beta',)))", "lwa.kernels.Blockwise(blocks=(('mu',), ('beta',)))"),
        ("summary", "PerRow(function=mine, scaled=True)", "..."),
        ("summary", "PerRow(function=<lambda>, scaled=True)", "..."),
        ("summary", "Quantiles(levels=(0.2, 0.5), column=None)", "lwa.summaries.Quantiles(0.2, 0.5, column=None)"),
        (
            "summary",
            "Combine(parts=(Quantiles(levels=(0.5,), column=None), MinMax(column=None)), column=None)",
            "lwa.summaries.Combine(lwa.summaries.Quantiles(0.5, column=None), lwa.summaries.MinMax(column=None))",
        ),
        (
            "method",
            "Firefly(bound=JaakkolaJordan(x=x, y=y, beta=beta), q=auto)",
            "lwa.rivals.Firefly(bound=lwa.rivals.JaakkolaJordan(x='x', y='y', beta='beta'), q='auto')",
        ),
        ("method", "sgld", "'sgld'"),
        ("kernel", "Mine(array([1., 2.]))", "..."),
        ("kernel", "Mine(k=__import__('os').system('ls'))", "..."),
        ("budget", "Budget(seconds=3.0, rows=inf)", "3"),
        ("budget", "Budget(seconds=inf, rows=1000000)", "lwa.RowReads(1000000)"),
        ("budget", "much", "..."),
        ("epsilon", "inf", "float('inf')"),
        ("target", "powered", "'powered'"),
        (
            "target",
            "Calibrated(transport=auto, leverage=True, reference=None, tolerance=0.02)",
            "lwa.targets.Calibrated(transport='auto', leverage=True, reference=None, tolerance=0.02)",
        ),
        ("target", "Calibrated(transport=auto, leverage=auto, reference=array([1., 2.]), tolerance=0.02)", "..."),
        ("precision", "float64", "'float64'"),
    ],
)
def test_settings_as_one_types_them(name, record, expected):
    assert write_setting(name, record) == expected
    if "..." not in expected:
        eval(expected, {"lwa": lwa})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"target": "calibrated", "refresh_steps": 2, "thinning": 1},
        {"thinning": 3},
        {"target": lwa.targets.Calibrated(leverage=True, transport=False), "thinning": 1},
    ],
)
def test_the_call_repeats_the_draws(options):
    made = run(**options)
    again = repeated(write_call(collect_data(made)), MODEL, Y)
    assert again.posterior["theta"].tobytes() == made.posterior["theta"].tobytes()
    assert again.sample_stats["lp"].tobytes() == made.sample_stats["lp"].tobytes()


def test_only_what_was_asked_for_is_typed():
    assert write_call(collect_data(fit())) == (
        "import lwa\n\nfit = lwa.sample(\n    model, data,\n    subset_size=100,\n    target='powered',\n    seed=7,\n"
        "    subset_move=lwa.subsets.Swap(k=1, every=1),\n"
        "    kernel=lwa.kernels.RandomWalk(target_accept=0.35, scale=1.0),\n)"
    )
    filled = SETTINGS | {"draws": "auto", "budget": "Budget(seconds=60.0, rows=inf)"}
    assert "\n    draws='auto',\n" in write_call(collect_data(fit(settings=filled)))
    assert "\n    budget=60,\n" in write_call(collect_data(fit(settings=filled)))
