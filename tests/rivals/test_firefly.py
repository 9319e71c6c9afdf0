"""Firefly: bounds are bounds, lights have their law, draws have the posterior's, and few rows are read."""

import itertools
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.errors import InputError
from lwa.rivals import Firefly, JaakkolaJordan, StudentT, bounds, engine, firefly
from lwa.rivals.firefly import Own, log_expm1
from lwa.rivals.problem import GaussianAtMode, RivalProblem
from lwa.rivals.problems import simulate_logistic
from lwa.rows.units import Stretch
from tests.rivals import conjugate

rng = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def in_double():
    with jax.enable_x64(True):
        yield


def t_terms(theta, rows, df=4.0, scale=0.7):
    """log f of Student's t errors, with all its constants."""
    return jax.scipy.stats.t.logpdf(rows["y"], df, rows["x"] @ theta["beta"], scale)


def logistic_terms(theta, rows):
    return jax.nn.log_sigmoid((2 * rows["y"] - 1) * (rows["x"] @ theta["beta"]))


BOUNDS = {
    "JaakkolaJordan": (JaakkolaJordan(), logistic_terms, lambda x: (rng.random(len(x)) < 0.4).astype(float)),
    "StudentT": (StudentT(4.0, 0.7), t_terms, lambda x: x.sum(1) + 0.7 * rng.standard_t(2, len(x))),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_below_the_likelihood_and_equal_at_the_mode(name):
    bound, terms, outcome = BOUNDS[name]
    x = 3.0 * rng.standard_normal((500, 3))
    x[:5] = 0.0  # ξ = 0
    rows = {"x": jnp.asarray(x), "y": jnp.asarray(outcome(x))}
    modes, directions = rng.normal(size=(4, 3)), rng.normal(size=(8, 3))
    for mode, direction, far in itertools.product(modes, directions, (1e-3, 0.1, 1.0, 30.0)):
        theta, mode = ({"beta": jnp.asarray(one)} for one in (mode + far * direction, mode))
        lift = terms(mode, rows) - bound(mode, rows, mode)
        assert np.ptp(lift) <= 1e-12  # the bound touches in every row, but for the constant of all of them
        gap = terms(theta, rows) - bound(theta, rows, mode) - lift
        assert (gap >= -1e-12 * (1 + np.abs(terms(theta, rows)))).all()


@pytest.mark.parametrize("name", BOUNDS)
def test_quadratic(name):
    bound, _, outcome = BOUNDS[name]
    x = rng.standard_normal((50, 3))
    rows = {"x": jnp.asarray(x), "y": jnp.asarray(outcome(x))}
    mode, start, step = rng.normal(size=(3, 3))
    along = [bound({"beta": start + i * step}, rows, {"beta": mode}) for i in range(4)]
    third = along[3] - 3 * along[2] + 3 * along[1] - along[0]
    np.testing.assert_allclose(third, 0.0, atol=1e-12 * np.abs(along).max())


def test_a_bare_array():
    x, y = rng.normal(size=(20, 2)), (rng.random(20) < 0.5).astype(float)
    beta, mode = rng.normal(size=(2, 2))
    bare = JaakkolaJordan(0, 1, beta=None)(beta, (x, y), mode)
    named = JaakkolaJordan()({"beta": beta}, {"x": x, "y": y}, {"beta": mode})
    np.testing.assert_array_equal(bare, named)


def test_groups():
    y = jnp.asarray((rng.random((5, 3)) < 0.5).astype(float))
    units = Stretch({"x": jnp.asarray(rng.normal(size=(5, 3, 2))), "y": y}, jnp.asarray(rng.random((5, 3)) < 0.7))
    model = lwa.Model(logistic_terms, lambda theta: 0.0, {"beta": jnp.zeros(2)})
    problem = RivalProblem(model.of_units, 5, units, 3.0, GaussianAtMode(jnp.ones(2), None, None, None, None))
    found = bounds.evaluate_bound(JaakkolaJordan(), jnp.zeros(2), units, problem)
    each = [
        JaakkolaJordan()({"beta": jnp.zeros(2)}, {"x": x, "y": y}, {"beta": jnp.ones(2)})[scored].sum()
        for x, y, scored in zip(units.rows["x"], units.rows["y"], units.scored, strict=True)
    ]
    np.testing.assert_allclose(found, each, rtol=1e-14)


@pytest.mark.slow
def test_draws_of_groups():
    x, y = rng.normal(size=(600, 2)), (rng.random(600) < 0.5).astype(float)
    data = {"x": x, "y": y, "who": np.repeat(np.arange(200), 3)}
    model = lwa.Model(
        logistic_terms, lambda theta: -0.5 * jnp.sum(theta["beta"] ** 2), {"beta": jnp.zeros(2)}, groups="who"
    )
    run = lwa.rivals.sample(
        "firefly", model, data, bound=JaakkolaJordan(), draws=50, tune=10, chains=1, seed=1, progress=False
    )
    assert not run.sample_stats["broken_bounds"].any()
    assert (run.sample_stats["n_rows_read"] % 3 == 0).all()


def test_log_odds_without_overflow():
    gap = jnp.array([0.0, 1e-300, 1e-12, 0.5, 1.0, 3.0, 5000.0])
    expected = [-np.inf, np.log(1e-300), np.log(1e-12), np.log(np.expm1(0.5)), np.log(np.expm1(1)), np.log(np.expm1(3))]
    np.testing.assert_allclose(log_expm1(gap), [*expected, 5000.0], rtol=1e-12)


# Four rows whose odds r_k are given: log f(Y_k|θ) = θ² log(1 + r_k) over a bound of zero, at θ = 1.

ODDS = np.array([0.1, 0.3, 0.8, 2.0])
FEW_Q = 0.4


def no_bound(theta, rows, mode):
    """Zero, which touches θ² log(1 + r_k) at θ = 0."""
    return 0.0 * rows * theta


def few_rows(rival):
    model = lwa.Model(lambda theta, rows: rows * theta**2, lambda theta: -0.5 * theta**2 * 3, 0.0)
    gaussian = GaussianAtMode(jnp.zeros(1), jnp.zeros(1), -jnp.eye(1), jnp.eye(1), jnp.eye(1))
    problem = RivalProblem(model, len(ODDS), jnp.log1p(jnp.asarray(ODDS)), 1.0, gaussian)
    return replace(problem, own=Own(bounds.collapse(rival.bound, problem), jnp.log(rival.q)))


def with_lights(z, blank):
    """A state at θ = 1 with these rows lit."""
    first = np.argsort(~z, kind="stable")
    odds = jnp.log(jnp.asarray(ODDS))
    rows = blank.rows.at[: len(z)].set(jnp.asarray(first, jnp.int32))
    log_odds = blank.log_odds.at[:, : len(z)].set(odds[first])
    total = jnp.where(z, odds, 0.0).sum()
    return blank._replace(n_bright=jnp.asarray(z.sum()), rows=rows, log_odds=log_odds, lit=jnp.asarray(z), bright=total)


def worst_transition(rival, repeats=6000):
    """Every z to every z′, simulated, against min(q, r) and min(1, q/r) row by row; the worst, in standard errors."""
    problem = few_rows(rival)
    relit = jax.jit(jax.vmap(lambda key, state: rival.relight(key, state, problem)[0].lit, (0, None)))
    blank = jax.jit(rival.init)(jax.random.key(0), jnp.ones(1), problem)
    patterns = np.array(list(itertools.product([False, True], repeat=len(ODDS))))
    worst = 0.0
    for number, z in enumerate(patterns):
        lit = np.asarray(relit(jax.random.split(jax.random.key(number), repeats), with_lights(z, blank)))
        flips = np.where(z, np.minimum(1.0, FEW_Q / ODDS), np.minimum(FEW_Q, ODDS))
        for to in patterns:
            chance = np.where(to != z, flips, 1.0 - flips).prod()
            came = (lit == to).all(1).sum()
            if chance == 0.0:
                assert not came
            if repeats * chance > 25:
                worst = max(worst, abs(came - repeats * chance) / np.sqrt(repeats * chance * (1 - chance)))
    return worst


class OneAfterTheOther(Firefly):
    """A bug: rows that have just lit up may go dark in the same step."""

    def leave(self, key, glow, state, problem):
        return super().leave(key, glow, state._replace(n_bright=glow.n_bright), problem)


class LightsLeftOut(Firefly):
    """A bug: θ is decided by the bounds alone."""

    def move(self, key, state, problem):
        moved, info = super().move(key, state._replace(n_bright=0 * state.n_bright, bright=0.0 * state.bright), problem)
        return moved._replace(n_bright=state.n_bright, bright=state.bright), info


@pytest.fixture
def small_chunks(monkeypatch):
    """So that few rows take several."""
    monkeypatch.setattr(firefly, "ROWS_PER_CHUNK", 2)


@pytest.mark.usefixtures("small_chunks")
def test_every_transition_of_the_lights():
    # Of 256 comparisons one is past 5.5 standard errors by chance in 10⁵ seeds. These transitions leave
    # ∏ Bernoulli(r/(1+r)) invariant, row by row: r min(1, q/r) = min(q, r).
    assert worst_transition(Firefly(no_bound, FEW_Q)) < 5.5


@pytest.mark.usefixtures("small_chunks")
def test_a_planted_bug_in_the_lights_is_seen():
    assert worst_transition(OneAfterTheOther(no_bound, FEW_Q), repeats=2000) > 7


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.slow
def test_what_is_kept_is_what_would_be_computed():
    rival = Firefly(looser)
    data = {name: jnp.asarray(column) for name, column in conjugate.ROWS.items()}
    mode = jnp.asarray(conjugate.MODEL.ravel({"logit": np.log(0.3 / 0.7), "mean": conjugate.CENTRE}))
    factor = 0.03 * jnp.eye(len(mode))
    problem = RivalProblem(conjugate.MODEL, conjugate.N, data, 1.0, GaussianAtMode(mode, None, None, factor, factor))
    problem = replace(problem, own=Own(bounds.collapse(looser, problem), jnp.log(0.02)))

    @jax.jit
    def anew(state):
        odds, _ = rival.log_odds(state.theta, state.rows, problem)
        bound = bounds.evaluate_bound(looser, state.theta, data, problem) - bounds.evaluate_bound(
            looser, mode, data, problem
        )
        return odds, problem.log_prior(state.theta) + bound.sum()

    state = jax.jit(rival.init)(jax.random.key(1), mode + 0.02, problem)
    step, most = jax.jit(rival.step), 0
    for number in range(100):
        before = int(state.n_bright)
        state, info = step(jax.random.fold_in(jax.random.key(2), number), state, problem)
        n = int(state.n_bright)
        most = max(most, n)
        assert info.rows >= before
        np.testing.assert_array_equal(np.sort(state.rows[:n]), np.flatnonzero(state.lit))
        odds, dark = anew(state)
        np.testing.assert_allclose(state.log_odds[state.side, :n], odds[:n], rtol=1e-9)
        np.testing.assert_allclose(state.bright, odds[:n].sum(), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state.dark, dark, rtol=1e-9)
    assert most > 4


def coin(theta, rows, mode):
    """The Gaussian's own, and Jaakkola and Jordan's of the coin."""
    one = {"x": jnp.ones_like(rows["success"]), "success": rows["success"]}
    logit = JaakkolaJordan(y="success", beta="logit")(theta, one, mode)
    return conjugate.log_gaussian(theta["mean"], rows["y"]) + logit


def looser(theta, rows, mode):
    """The same less than it could be, so that some rows are bright."""
    away = sum(jnp.sum((theta[name] - mode[name]) ** 2) for name in theta)
    return coin(theta, rows, mode) - 0.35 * away


@pytest.mark.slow
def test_the_law_of_the_draws():
    run = conjugate.fit("firefly", bound=looser)
    assert run.sample_stats["n_bright"].mean() > 1
    t, what = conjugate.worst_t(run)
    assert t < 5, what


@pytest.mark.slow
def test_the_law_of_the_draws_where_hardly_a_row_is_bright():
    t, what = conjugate.worst_t(conjugate.fit("firefly", bound=coin, draws=2000))
    assert t < 5, what


@pytest.mark.slow
@pytest.mark.parametrize("bug", [OneAfterTheOther, LightsLeftOut])
def test_a_planted_bug_is_seen(bug):
    t, _ = conjugate.worst_t(conjugate.fit(bug(looser), draws=1000))
    assert t > 7


@pytest.mark.slow
def test_few_rows_a_step():
    demo = simulate_logistic(100_000, seed=1, parameters=10)
    run = lwa.rivals.sample(
        "firefly", demo.model, demo.data, bound=JaakkolaJordan(), draws=1000, tune=500, seed=1, progress=False
    )
    share = run.sample_stats["n_rows_read"].mean() / 100_000
    assert not run.sample_stats["broken_bounds"].any()
    print(f"{share:.6%} of all rows per step, {run.sample_stats['n_bright'].mean():.2f} of them bright")
    assert 0 < share < 0.05


@pytest.mark.slow
def test_no_step_copies_what_has_n_entries():
    N, d = 12_347, 2
    demo = simulate_logistic(N, seed=1, parameters=d)
    eye = jnp.eye(d)
    gaussian = GaussianAtMode(jnp.zeros(d), None, None, eye, eye)
    problem = RivalProblem(demo.model, N, jax.tree.map(jnp.asarray, demo.data), 1.0, gaussian)
    rival = Firefly(JaakkolaJordan(), 0.01)
    problem = replace(problem, own=Own(bounds.collapse(rival.bound, problem), jnp.log(0.01)))
    chain = engine.start_chain(jax.random.key(0), np.zeros(d), rival, problem)
    room = engine.make_blank_page(rival, chain.state, problem)
    program = (
        engine.advance_chain.lower(jax.random.key(0), chain, room, 0, 1, problem, rival, False).compile().as_text()
    )
    loops, entry = program.split("\nENTRY ")
    sizes = {leaf.shape[-1] for leaf in jax.tree.leaves(chain.state) if leaf.ndim and leaf.shape[-1] >= N}
    large = rf"= \w+\[(?:\d+,)?(?:{'|'.join(map(str, sizes))})\]\S* copy\("
    assert re.search(large, entry)  # once a call: this is how a copy looks
    assert not re.search(large, loops)


def refusal(model=conjugate.MODEL, data=conjugate.ROWS, **options):
    with pytest.raises(InputError) as error:
        lwa.rivals.sample("firefly", model, data, draws=10, tune=10, chains=1, seed=1, progress=False, **options)
    return str(error.value)


def too_high(theta, rows, mode):
    return coin(theta, rows, mode) + 1.0 * (theta["logit"] - mode["logit"]) ** 2


def not_tangent(theta, rows, mode):
    return coin(theta, rows, mode) + 1.0 * (theta["logit"] - mode["logit"])


def cubic(theta, rows, mode):
    return coin(theta, rows, mode) - 1e-3 * (theta["logit"] - mode["logit"]) ** 3


def summed(theta, rows, mode):
    return coin(theta, rows, mode).sum()


def raising(theta, rows, mode):
    return rows["nothing"] * theta["logit"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["needs a lower bound", "bound=lwa.rivals.JaakkolaJordan()"]),
        ({"bound": 3}, ["bound=3 is not a function", "JaakkolaJordan()"]),
        ({"bound": coin, "q": 1.5}, ["q=1.5", "(0, 1)"]),
        ({"bound": coin, "q": "often"}, ["q='often'", "(0, 1)"]),
        ({"bound": too_high}, ["exceeds the log-likelihood by", "theta = {'logit'", "below everywhere"]),
        ({"bound": not_tangent}, ["exceeds the log-likelihood by", "touch at the mode"]),
        ({"bound": cubic}, ["not quadratic in theta", "theta = {'logit'"]),
        ({"bound": summed}, ["shape ()", "shape (1000,), is expected"]),
        ({"bound": raising}, ["bound raised KeyError", "test_firefly.py"]),
        ({"bound": JaakkolaJordan(y="outcome", beta="mean")}, ["y='outcome'", "['success', 'y']"]),
        ({"bound": JaakkolaJordan(x="z", beta="mean")}, ["x='z'", "['success', 'y']"]),
        ({"bound": JaakkolaJordan()}, ["beta='beta'", "['logit', 'mean']"]),
        ({"bound": JaakkolaJordan(beta=None)}, ["['logit', 'mean']", "beta= the name"]),
        ({"bound": JaakkolaJordan(x="success", beta="mean")}, ["1 entries per row", "3 coefficients"]),
    ],
)
def test_refusals(options, words):
    message = refusal(**options)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(("df", "scale", "words"), [(0, 1.0, "df=0"), (4, -1.0, "scale=-1.0")])
def test_refused_errors_of_student(df, scale, words):
    with pytest.raises(InputError, match=words):
        StudentT(df, scale)


def test_rows_whose_bound_was_broken_are_told():
    assert Firefly(coin).collect_warnings({"broken_bounds": np.zeros((2, 3), int)}) == []
    assert "4 rows" in Firefly(coin).collect_warnings({"broken_bounds": np.array([[1, 0], [0, 3]])})[0]
