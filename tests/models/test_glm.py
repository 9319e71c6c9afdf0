"""Regressions by formula: what they read, refuse, compute and recover."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import polars
import pyarrow
import pytest
from scipy import stats

import lwa
from lwa.data.data import lay_out
from lwa.models.glm.formula import read_expression, read_formula
from lwa.models.glm.learning import RunningMoments
from lwa.models.likelihood import Places, ScoreSums, add_block
from lwa.rows import convert
from lwa.rows.memory import ArrayRows
from lwa.rows.slots import fill_up
from lwa.targets.reference import find_reference, sum_batches

N = 400
RNG = np.random.default_rng(7)
TABLE = pandas.DataFrame(
    {
        "x": RNG.normal(size=N),
        "z": RNG.gamma(2.0, size=N) + 0.1,
        "a": RNG.choice(["p", "q", "r"], N),
        "b": RNG.choice(["u", "v"], N),
        "many": RNG.choice([f"L{i:02d}" for i in range(20)], N),
        "k": RNG.integers(0, 3, N),
        "flag": RNG.random(N) < 0.4,
        "my column": RNG.normal(size=N),
        "y": RNG.normal(size=N),
    }
)


def bound_to(formula, family="gaussian", data=TABLE, **options):
    return lwa.glm(formula, family, **options).bind(data)


# Formulas


@pytest.mark.parametrize(
    ("formula", "terms"),
    [
        ("y ~ 1", [()]),
        ("y ~ a", [(), ("a",)]),
        ("y ~ 0 + a", [("a",)]),
        ("y ~ a - 1", [("a",)]),
        ("y ~ -1 + a", [("a",)]),
        ("y ~ a*b", [(), ("a",), ("b",), ("a", "b")]),
        ("y ~ a:b + b", [(), ("b",), ("a", "b")]),
        ("y ~ a + b:a + a:b", [(), ("a",), ("b", "a")]),
        ("y ~ a/b", [(), ("a",), ("a", "b")]),
        ("y ~ (a + b)/c", [(), ("a",), ("b",), ("a", "b", "c")]),
        ("y ~ (a + b + c)^2", [(), ("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c")]),
        ("y ~ (a + b)**2 - a:b", [(), ("a",), ("b",)]),
        ("y ~ a*b*c - a:b:c", [(), ("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c")]),
        ("y ~ log( x+1 ) + {x**2} + I(x*2)", [(), ("log(x + 1)",), ("x ** 2",), ("I(x * 2)",)]),
        ("y ~ `my column` + offset(log(z))", [(), ("my column",)]),
        ("y ~ (x > 15)*z", [(), ("x > 15",), ("z",), ("x > 15", "z")]),
        ("y ~ ((x <= 1) + z)^2", [(), ("x <= 1",), ("z",), ("x <= 1", "z")]),
        ("y ~ I(a == 'p') + (b != ')~(')", [(), ("I(a == 'p')",), ("b != ')~('",)]),
        ("y ~ ({x > 1} + z):a", [(), ("x > 1", "a"), ("z", "a")]),
    ],
)
def test_terms(formula, terms):
    assert list(read_formula(formula).terms) == terms


@pytest.mark.parametrize(
    ("formula", "told"),
    [
        ("y ~ {__import__('os')}", r"calls '__import__', which is not allowed\. Valid: log"),
        ("y ~ {__import__('os').system('true')}", r"is not part of a formula"),
        ("y ~ log(x.real)", r"'x\.real' is not part of a formula"),
        ("y ~ x.real", r"cannot be read from '\.real'"),
        ("y ~ x[0]", r"cannot be read from '\[0\]'"),
        ("y ~ log(x[0])", r"'x\[0\]' is not part"),
        ("y ~ log((lambda: x)())", r"not part of a formula"),
        ("y ~ {[i for i in x]}", r"not part of a formula"),
        ("y ~ {x if x else x}", r"not part of a formula"),
        ("y ~ {(x := 3)}", r"not part of a formula"),
        ("y ~ log('x')", r"not part of a formula"),
        ("y ~ eval(x)", r"calls 'eval'"),
        ("y ~ log(x, 2)", r"log takes one argument"),
        ("y ~ log(center(x))", r"center\(\.\.\.\) stands inside"),
        ("exec(y) ~ x", r"calls 'exec'"),
        ("y ~ log(3)", r"names no column"),
        ("y", r"needs one '~'"),
        ("y ~ ", r"needs one '~'"),
        ("~ x", r"needs one '~'"),
        ("y ~ x ~ z", r"needs one '~'"),
        ("y ~ x +", r"where a column is expected"),
        ("y ~ x z", r"has 'z' where an operator is expected"),
        ("y ~ (x", r"has 'its end' where '\)' is expected"),
        ("y ~ log(x", r"never closed"),
        ("y ~ 2", r"2 is not a term"),
        ("y ~ 0", r"nothing to infer"),
        ("y ~ .", r"cannot be read from '\.'"),
        ("y ~ class(x)", r"cannot be read"),
        ("y ~ x" + " + x" * 9000, r"has \d+ characters"),
        ("y ~ " + "(" * 2000 + "x" + ")" * 2000, r"nests more than 100 brackets"),
        ("y ~ I(" + "x + " * 1500 + "x)", r"nests more than 100 operations"),
        ("y ~ I(" + "(" * 1500 + "x" + ")" * 1501, r"cannot be read"),
        (3, r"formula=3 is not a text"),
        ("y ~ __import__('os').system('x')", r"cannot be read|calls '__import__'"),
        ("y ~ x.__class__", r"cannot be read from '\.__class__'"),
        ("y ~ (lambda: 0)()", r"'lambda' in the formula cannot be read"),
        ("y ~ (x.real > 1)", r"'x\.real' is not part of a formula"),
        ("y ~ (x == f'{y}')", r"not part of a formula"),
        ("y ~ (x == b'1')", r"not part of a formula"),
        ("y ~ (x in z)", r"'z' where '\)' is expected|has 'in' where"),
        ("y ~ I(x is z)", r"not part of a formula"),
        ("y ~ I(not x)", r"not part of a formula"),
        ("y ~ I(x > 1 and x < 3)", r"not part of a formula"),
        ("y ~ (1 < x < 3)", r"compares more than two\. Write I\(\(x > 1\) \* \(x < 3\)\)"),
        ("y ~ (a > 'p')", r"a text is compared by == or !="),
        ("y ~ (log(a) == 'p')", r"\"'p'\" is not part of a formula"),
        ("y ~ ('p' == 'q')", r"not part of a formula"),
        ("y ~ x > 15", r"a comparison stands in brackets, \(x > 15\)"),
        ("y ~ C(a, ref=b)", r"ref=b in the formula is not a level"),
        ("y ~ C(a, base='p')", r"C takes one argument\. Write C\(x\), or C\(x, ref='some level'\)\."),
        ("y ~ C(a, ref='p', ref2=1)", r"C takes one argument"),
    ],
)
def test_what_is_no_formula_is_refused_in_words(formula, told):
    with pytest.raises(lwa.InputError, match=told):
        lwa.glm(formula)


def test_an_expression_is_evaluated_as_it_is_written():
    columns = {"x": np.array([1, 4]), "a b": np.array([0.5, 2.0])}
    read = read_expression("sqrt(x) + 2 * -`a b` ** 2 / abs(I(x) - 3)")
    assert read.columns == ["x", "a b"]
    expected = np.sqrt([1, 4]) + 2 * -np.array([0.25, 4.0]) / np.array([2, 1])
    np.testing.assert_allclose(read.compute(columns), expected, rtol=1e-15)


@pytest.mark.parametrize("sign", [">", ">=", "<", "<=", "==", "!="])
def test_comparisons_are_ones_and_zeros_and_nan_stays(sign):
    columns = {"x": np.array([1.0, 2.0, 3.0, np.nan]), "z": np.array([2.0, 2.0, 2.0, 2.0])}
    expected = [float(eval(f"{x} {sign} 2")) for x in (1, 2, 3)]
    for text in (f"x {sign} 2", f"x {sign} z", f"I(x {sign} `z`)"):
        np.testing.assert_array_equal(read_expression(text).compute(columns), [*expected, np.nan])


def test_a_comparison_with_a_text_is_of_the_level_whatever_its_code():
    expression = read_expression("'q' == a")
    assert (expression.columns, expression.computed) == (["a"], [])
    codes = {"a": np.array([0, 1, 2])}
    np.testing.assert_array_equal(expression.compute(codes, {"a": ("p", "q", "r")}), [0, 1, 0])
    np.testing.assert_array_equal(expression.compute(codes, {"a": ("q", "r", "s")}), [1, 0, 0])
    np.testing.assert_array_equal(expression.compute(codes, {"a": ("u", "r", "s")}), [0, 0, 0])  # other data


# Designs

FORMULAS = [
    "y ~ 1",
    "y ~ x + z",
    "y ~ a",
    "y ~ 0 + a",
    "y ~ a + b",
    "y ~ 0 + a + b",
    "y ~ a*b",
    "y ~ a:b",
    "y ~ 0 + a:b",
    "y ~ x*a",
    "y ~ x:a",
    "y ~ a + a:b",
    "y ~ b + a:b",
    "y ~ x*z + log(z)",
    "y ~ a*b*x",
    "y ~ (a + b + x)**2",
    "y ~ C(k) + x:C(k)",
    "y ~ center(x) + scale(z)",
    "y ~ many*x",
    "y ~ many + a:many - 1",
    "y ~ x - 1",
    "y ~ I(x > 0.5) + {z <= 1}",
    "y ~ {a == 'p'}*z + I(b != 'u')",
    "y ~ I((x > -1) * (x < 1)) + a:I(x > z)",
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_designs_are_those_of_formulaic(formula):
    formulaic = pytest.importorskip("formulaic")
    numbers = TABLE.astype({"k": "int64"})
    expected = formulaic.model_matrix(formula, numbers).rhs
    glm = lwa.glm(formula)
    found = dict(zip(matrix_names(glm), matrix_of(glm).T, strict=True))
    assert set(found) == set(expected.columns)
    for name in expected.columns:
        ours = found[name]
        theirs = np.asarray(expected[name], float)
        if name.startswith("scale("):
            ours = ours * np.sqrt((N - 1) / N)  # formulaic divides by the sd with N - 1
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12, err_msg=name)


def unchecked(glm, data=TABLE):
    """A recipe without the pass that refuses collinear columns: some designs above have them."""
    from lwa.models.glm.design import build_design
    from lwa.models.glm.learning import learn
    from lwa.models.glm.recipe import Recipe, RecipeRows, open_columns

    source, held = open_columns(data, glm.names)
    learned = learn(source, glm.names, glm.formula.factors, held.levels)
    recipe = Recipe(glm.formula, glm.family, build_design(glm.formula, learned.levels), learned, (), None, None)
    return RecipeRows(source, glm.names, recipe, held)


def matrix_names(glm):
    return unchecked(glm).recipe.design.names


def matrix_of(glm):
    read = unchecked(glm)
    design = read.recipe.design
    columns = {name: read.source.take(np.arange(N))[name] for name in read.names}
    parts = read.recipe.parts(columns, read.held)
    pieces = [block.write_out(part) for block, part in zip(design.blocks, parts, strict=True)]
    return np.concatenate([np.ones((N, int(design.intercept))), *pieces], axis=1)


@pytest.mark.parametrize("formula", ["y ~ 1", "y ~ x*z", "y ~ many*x + a*b", "y ~ 0 + many + z:many", "y ~ flag*a"])
def test_what_is_looked_up_is_the_matrix_product(formula):
    bound = bound_to(formula)
    beta = np.random.default_rng(1).normal(size=len(bound.names))
    with jax.enable_x64(True):
        rows = bound.rows.take(np.arange(N))
        found = bound.rows.recipe.design.predictor(jnp.asarray(beta), jax.tree.map(jnp.asarray, rows))
    np.testing.assert_allclose(found, bound.design_matrix(TABLE) @ beta, rtol=1e-12, atol=1e-12)


def test_many_levels_take_one_number_a_row():
    rows = bound_to("y ~ x + many + many:x").rows.take(np.arange(5))
    assert {name: values.shape for name, values in rows.items()} == {
        "y": (5,), "x": (5, 1), "code": (5, 2), "times": (5, 2),
    }  # fmt: skip


def test_levels_are_labelled_and_the_first_is_the_reference():
    bound = bound_to("y ~ x + a + flag + C(k)")
    expected = ["Intercept", "x", "a[T.q]", "a[T.r]", "flag[T.True]", "C(k)[T.1]", "C(k)[T.2]"]
    assert bound.names == expected
    assert bound.levels["a"] == ("p", "q", "r")
    assert bound.model.coords == {"coefficient": expected}


@pytest.mark.parametrize(("factor", "level"), [("a", "'q'"), ("k", "1"), ("many", "'L07'")])
def test_another_reference_level(factor, level):
    formulaic = pytest.importorskip("formulaic")
    expected = formulaic.model_matrix(f"y ~ x*C({factor}, contr.treatment({level}))", TABLE).rhs
    ours = bound_to(f"y ~ x*C({factor}, ref={level})")
    names = [name.replace(f"contr.treatment({level})", f"ref={level}") for name in expected.columns]
    found = dict(zip(ours.names, ours.design_matrix(TABLE).T, strict=True))
    assert set(names) == set(found)
    for name, theirs in zip(names, expected.to_numpy(float).T, strict=True):
        np.testing.assert_allclose(found[name], theirs, err_msg=name)


def test_a_comparison_as_the_response():
    for formula in ("I(y > 0.5) ~ x + a", "(y > 0.5) ~ x + a", "y > 0.5 ~ x + a"):
        rows = bound_to(formula, "bernoulli").rows.take(np.arange(N))
        np.testing.assert_array_equal(rows["y"], TABLE["y"] > 0.5)
    rows = bound_to("(a == 'q') ~ x", "bernoulli").rows.take(np.arange(N))
    np.testing.assert_array_equal(rows["y"], TABLE["a"] == "q")


def test_categories_keep_the_order_that_they_were_given():
    table = TABLE.assign(a=pandas.Categorical(TABLE["a"], ["r", "unused", "p", "q"]))
    assert bound_to("y ~ a", data=table).names == ["Intercept", "a[T.p]", "a[T.q]"]
    frame = polars.DataFrame({"a": TABLE["a"].tolist(), "y": TABLE["y"].to_numpy()})
    frame = frame.with_columns(polars.col("a").cast(polars.Enum(["r", "p", "q"])))
    assert bound_to("y ~ a", data=frame).names == ["Intercept", "a[T.p]", "a[T.q]"]


def test_every_kind_of_table_gives_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("LWA_CACHE", str(tmp_path / "cache"))
    some = TABLE[["y", "x", "a", "many", "flag"]]
    kinds = {
        "pandas": some,
        "categories": some.astype({"a": "category"}),
        "objects": some.astype({"a": object}),
        "polars": polars.DataFrame({name: some[name].to_list() for name in some}),
        "polars categories": polars.DataFrame({name: some[name].to_list() for name in some}).with_columns(
            polars.col("a").cast(polars.Categorical)
        ),
        "arrow": pyarrow.table({name: some[name].to_list() for name in some}),
        "arrow dictionary": pyarrow.table({name: some[name].to_list() for name in some}).set_column(
            2, "a", pyarrow.chunked_array([some["a"][:100].to_list(), some["a"][100:].to_list()]).dictionary_encode()
        ),
        "arrays": {name: np.array(some[name].to_list()) for name in some},
        "lists": {name: some[name].to_list() for name in some},
        "store": convert(some, tmp_path / "store", progress=False),
    }
    some.assign(unused=[None, *range(N - 1)]).to_parquet(tmp_path / "some.parquet")  # a hole that does not matter
    kinds["parquet"] = tmp_path / "some.parquet"
    kinds["store by its path"] = str(tmp_path / "store")
    first = bound_to("y ~ x + a + many + flag")
    expected = first.rows.take(np.arange(N))
    for kind, data in kinds.items():
        bound = bound_to("y ~ x + a + many + flag", data=data)
        assert bound.names == first.names, kind
        found = bound.rows.take(np.arange(N))
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, err_msg=f"{kind}, {name}")


def test_blocks_and_gathers_agree():
    rows = bound_to("y ~ x*many + a", weights="z", offset="log(z)").rows
    whole = rows.take(np.arange(N))
    blocks = list(rows.blocks(33))
    for name, values in whole.items():
        np.testing.assert_array_equal(np.concatenate([block[name] for block in blocks]), values)


def test_other_data_are_read_by_the_levels_that_are_known():
    bound = bound_to("y ~ a + C(k)")
    some = TABLE[TABLE["a"] != "p"]
    np.testing.assert_array_equal(bound.design_matrix(some), bound.design_matrix(TABLE)[(TABLE["a"] != "p").to_numpy()])
    with pytest.raises(lwa.DataError, match=r"'a' has the level 'new', .* Known: 'p', 'q', 'r'"):
        bound.design_matrix(TABLE.assign(a=["new", *TABLE["a"][1:]]))
    with pytest.raises(lwa.DataError, match=r"'C\(k\)' has the level 7\.0"):
        bound.design_matrix(TABLE.assign(k=[*TABLE["k"][1:], 7]))
    strange = replace(bound.rows, source=ArrayRows({"a": np.array([0, 1]), "k": np.array([0, 5]), "y": np.zeros(2)}))
    with pytest.raises(
        lwa.DataError, match=r"'C\(k\)' has the level 5\.0, .* Known: 0, 1, 2\. Bind it to data with all"
    ):
        strange.take(np.array([1]))  # a chunk that is not what the pass over all rows saw
    compared = bound_to("y ~ (a == 'q')")
    np.testing.assert_array_equal(compared.design_matrix(some)[:, 1], some["a"] == "q")
    with pytest.raises(lwa.DataError, match=r"column 'a' with the text 'q', but it holds numbers"):
        compared.design_matrix(TABLE.assign(a=1.0))


def test_moments_in_blocks_are_those_of_all():
    values, running = RNG.normal(1e6, 1.0, 1000), RunningMoments()
    for block in np.array_split(values, 7):
        running.add(block)
    np.testing.assert_allclose(
        [running.mean, running.sd], [values.mean(), values.std()], rtol=1e-9
    )  # 10⁶ rounds at 10⁻¹⁰


# Likelihoods

ETA = np.linspace(-2.5, 2.0, 12)
COUNTS = np.array([0, 1, 2, 0, 5, 1, 0, 3, 9, 1, 0, 4.0])
BITS = (COUNTS > 0).astype(float)
PROBABILITY = {
    "logit": 1 / (1 + np.exp(-ETA)),
    "probit": stats.norm.cdf(ETA),
    "cloglog": -np.expm1(-np.exp(ETA)),
}
LAWS = {
    ("gaussian", "identity"): (ETA[::-1], {"sigma": 1.7}, stats.norm(ETA, 1.7).logpdf),
    ("gaussian", "log"): (ETA[::-1], {"sigma": 1.7}, stats.norm(np.exp(ETA), 1.7).logpdf),
    ("student_t", "identity"): (ETA[::-1], {"sigma": 1.7, "nu": 3.5}, stats.t(3.5, ETA, 1.7).logpdf),
    ("poisson", "log"): (COUNTS, {}, stats.poisson(np.exp(ETA)).logpmf),
    ("negative_binomial", "log"): (COUNTS, {"phi": 0.8}, stats.nbinom(0.8, 0.8 / (0.8 + np.exp(ETA))).logpmf),
    ("gamma", "log"): (COUNTS + 0.3, {"shape": 2.3}, stats.gamma(2.3, scale=np.exp(ETA) / 2.3).logpdf),
    **{("bernoulli", link): (BITS, {}, stats.bernoulli(p).logpmf) for link, p in PROBABILITY.items()},
    **{("binomial", link): (COUNTS, {}, stats.binom(9, p).logpmf) for link, p in PROBABILITY.items()},
}


@pytest.mark.parametrize(("family", "link"), LAWS)
def test_log_likelihoods_are_scipys(family, link):
    y, auxiliary, law = LAWS[family, link]
    trials = {"trials": "n"} if family == "binomial" else {}
    data = {"y": y, "eta": ETA, "n": np.full(len(y), 9)}
    bound = lwa.glm("y ~ eta", family, link=link, priors="flat", **trials).bind(data)
    with jax.enable_x64(True):
        theta = {"beta": jnp.array([0.0, 1.0])} | {name: jnp.asarray(value) for name, value in auxiliary.items()}
        found = bound.model.log_likelihood(theta, jax.tree.map(jnp.asarray, bound.rows.take(np.arange(len(y)))))
    np.testing.assert_allclose(found, law(y), rtol=1e-11, atol=1e-12)


def test_the_log_likelihood_of_levels_is_a_softmax():
    y = np.array(["c", "a", "b", "c", "a", "b", "a", "c", "b", "a", "a", "c"])
    bound = lwa.glm("y ~ eta", "categorical").bind({"y": y, "eta": ETA})
    beta = np.array([[0.3, -0.5], [-0.2, 1.5]])
    with jax.enable_x64(True):
        rows = jax.tree.map(jnp.asarray, bound.rows.take(np.arange(12)))
        found = bound.model.log_likelihood({"beta": jnp.asarray(beta)}, rows)
    eta = np.column_stack([np.zeros(12), np.column_stack([np.ones(12), ETA]) @ beta.T])
    odds = np.exp(eta)
    place = np.array(["abc".index(level) for level in y])
    np.testing.assert_allclose(found, np.log(odds[np.arange(12), place] / odds.sum(1)), rtol=1e-12)
    assert bound.model.coords == {"coefficient": ["Intercept", "eta"], "level": ["b", "c"]}


def test_numbers_can_be_levels_of_a_response():
    bound = bound_to("k ~ x", "categorical")
    assert bound.levels["k"] == (0, 1, 2)


def test_weights_multiply_and_offsets_add():
    data = {"y": COUNTS, "eta": ETA, "w": np.arange(12.0)}
    plain = lwa.glm("y ~ eta", "poisson").bind(data)
    inside = lwa.glm("y ~ eta + offset(eta / 2)", "poisson", weights="w").bind(data)
    outside = lwa.glm("y ~ eta", "poisson", offset="eta / 2", weights="w").bind(data)
    with jax.enable_x64(True):

        def terms(bound, slope):
            rows = jax.tree.map(jnp.asarray, bound.rows.take(np.arange(12)))
            return bound.model.log_likelihood({"beta": jnp.array([0.1, slope])}, rows)

        expected = data["w"] * terms(plain, 1.5)
        np.testing.assert_allclose(terms(inside, 1.0), expected, rtol=1e-12)
        np.testing.assert_allclose(terms(outside, 1.0), expected, rtol=1e-12)


def test_a_response_of_two_texts_is_a_bit():
    data = TABLE.assign(late=np.where(TABLE["x"] > 0, "yes", "no"))
    rows = bound_to("late ~ z", "bernoulli", data=data).rows.take(np.arange(N))
    np.testing.assert_array_equal(rows["y"], (TABLE["x"] > 0).astype(float))
    rows = bound_to("flag ~ z", "bernoulli").rows.take(np.arange(N))
    np.testing.assert_array_equal(rows["y"], TABLE["flag"].astype(float))


# Priors


def log_prior(bound, **theta):
    with jax.enable_x64(True):
        return float(bound.model.log_prior({name: jnp.asarray(value) for name, value in theta.items()}))


def test_weak_priors_are_scaled_to_the_data():
    bound = bound_to("y ~ x + a")
    X = bound.design_matrix(TABLE)[:, 1:]
    sd_y, sd_x = TABLE["y"].std(ddof=0), TABLE["x"].std(ddof=0)
    beta, sigma = np.array([0.4, 0.2, -0.3, 0.1]), 1.3
    at_means = beta[0] + X.mean(0) @ beta[1:]
    expected = (
        stats.norm(TABLE["y"].mean(), 2.5 * sd_y).logpdf(at_means)
        + stats.norm(0, [2.5 * sd_y / sd_x, 2.5 * sd_y, 2.5 * sd_y]).logpdf(beta[1:]).sum()
        + stats.expon(scale=sd_y).logpdf(sigma)
    )
    assert log_prior(bound, beta=beta, sigma=sigma) == pytest.approx(expected, rel=1e-12)


def test_priors_that_are_asked_for():
    asked = {
        "a": ("student_t", 4, 0, 1),
        "a[T.r]": ("cauchy", 0.5, 2),
        "x": "flat",
        "Intercept": ("normal", 1, 2),
        "sigma": ("half_normal", 3),
    }
    bound = bound_to("y ~ 1 + x + a", priors=asked)
    beta, sigma = np.array([0.4, 0.2, -0.3, 0.1]), 1.3
    at_means = beta[0] + bound.design_matrix(TABLE)[:, 1:].mean(0) @ beta[1:]
    expected = (
        stats.norm(1, 2).logpdf(at_means)
        + stats.t(4).logpdf(-0.3)
        + stats.cauchy(0.5, 2).logpdf(0.1)
        + stats.halfnorm(scale=3).logpdf(sigma)
    )
    assert log_prior(bound, beta=beta, sigma=sigma) == pytest.approx(expected, rel=1e-12)
    assert "a[T.r] ~ cauchy(0.5, 2)" in bound.described
    assert log_prior(bound_to("y ~ x", priors="flat"), beta=beta[:2], sigma=sigma) == 0.0


@pytest.mark.parametrize(
    ("spec", "law"),
    [
        (("exponential", 2.0), stats.expon(scale=0.5)),
        (("half_cauchy", 2.0), stats.halfcauchy(scale=2.0)),
        (("gamma", 2.0, 0.1), stats.gamma(2.0, scale=10.0)),
        (("lognormal", 0.3, 0.7), stats.lognorm(0.7, scale=np.exp(0.3))),
    ],
)
def test_priors_of_scales(spec, law):
    bound = bound_to("y ~ 1", priors={"Intercept": "flat", "sigma": spec})
    assert log_prior(bound, beta=np.zeros(1), sigma=1.7) == pytest.approx(law.logpdf(1.7), rel=1e-12)


@pytest.mark.parametrize(
    ("priors", "told"),
    [
        ("weak", r"priors='weak' is not known"),
        ({"x": ("norml", 0, 1)}, r"priors\['x'\]=\('norml', 0, 1\) is not known\. Valid: \('normal', 'location'"),
        ({"x": ("normal", 0)}, r"'normal' takes the numbers location, scale > 0"),
        ({"x": ("normal", 0, -1)}, r"scale > 0"),
        ({"x": ("exponential", 1)}, r"is not known"),
        ({"sigma": ("normal", 0, 1)}, r"is not known\. Valid: \('exponential', 'rate'\)"),
        ({"w": ("normal", 0, 1)}, r"priors names 'w', which is not a coefficient\. Valid: 'Intercept', 'x', 'sigma'"),
    ],
)
def test_priors_that_cannot_be(priors, told):
    with pytest.raises(lwa.InputError, match=told):
        bound_to("y ~ x", priors=priors)


# What is refused


def with_row(column, row, value):
    return TABLE.assign(**{column: [value if i == row else old for i, old in enumerate(TABLE[column])]})


ARROW = pyarrow.Table.from_pandas(TABLE)
MIXED = TABLE.assign(a=[["1", "2", "3", "4", "5.5", "oops"][i % 6] for i in range(N)])


def test_levels_may_be_mixed_where_they_are_meant():
    assert len(bound_to("y ~ C(a)", data=MIXED).names) == 6


@pytest.mark.parametrize(
    ("formula", "family", "data", "options", "told"),
    [
        ("y ~ distanse", "gaussian", TABLE.rename(columns={"x": "distance"}), {}, r"'distanse', .* mean 'distance'\?"),
        ("y ~ x", "gaussian", np.zeros((5, 2)), {}, r"columns with names"),
        ("y ~ x", "poisson", TABLE, {}, r"family='poisson' expects whole numbers >= 0\. .* the first in row \d+ \("),
        ("k ~ x", "poisson", with_row("k", 17, -1), {}, r"'k' has 1, the first in row 17 \(-1\)"),
        ("k ~ x", "poisson", with_row("k", 17, 0.5), {}, r"'k' has 1, the first in row 17 \(0\.5\)"),
        ("k ~ x", "bernoulli", TABLE, {}, r"expects 0 or 1"),
        ("a ~ x", "bernoulli", TABLE, {}, r"expects two levels, but 'a' has 3\. Pass family='categorical'"),
        ("k ~ x", "binomial", TABLE, {"trials": 1}, r"from 0 to the number of trials"),
        ("k ~ x", "binomial", TABLE, {}, r"Pass family='binomial', trials='n'"),
        ("k ~ x", "poisson", TABLE, {"trials": 3}, r"other families have none"),
        ("k ~ x", "binomial", TABLE, {"trials": 0}, r"trials=0 is not a column"),
        ("y ~ x", "gamma", TABLE, {}, r"expects numbers > 0"),
        ("y ~ x", "gausian", TABLE, {}, r"family='gausian' is not known\. Valid: 'gaussian'"),
        ("y ~ x", "gaussian", TABLE, {"link": "logit"}, r"link='logit' is not known\. Valid: 'identity', 'log'\."),
        ("y ~ x + z", "gaussian", with_row("x", 3, np.nan), {}, r"'x' has 1, the first in row 3 \(nan\)"),
        ("y ~ x", "gaussian", with_row("y", 3, np.inf), {}, r"'y' has 1, the first in row 3 \(inf\)"),
        ("y ~ log(x)", "gaussian", TABLE, {}, r"NaN or infinite values: 'log\(x\)' has \d+"),
        ("y ~ center(x)", "gaussian", with_row("x", 3, np.nan), {}, r"'center\(x\)' is NaN"),
        ("y ~ a", "gaussian", with_row("a", 5, None), {}, r"column 'a' has 1, the first in row 5"),
        ("y ~ a", "gaussian", TABLE.assign(a="p"), {}, r"factor 'a' has one level in all rows, 'p'"),
        ("y ~ flag", "gaussian", TABLE.assign(flag=True), {}, r"factor 'flag' has one level in all rows, True"),
        ("y ~ scale(k)", "gaussian", TABLE.assign(k=1), {}, r"has no scale"),
        ("y ~ log(a)", "gaussian", TABLE, {}, r"'log\(a\)' computes with the column 'a', which holds text"),
        ("a ~ x", "gaussian", TABLE, {}, r"'a' must be a number, but the column 'a' holds text"),
        ("y ~ x", "gaussian", TABLE, {"weights": "x"}, r"Weights must be >= 0"),
        ("y ~ x", "gaussian", TABLE, {"weights": 3}, r"weights=3 is not a column"),
        ("y ~ x", "gaussian", TABLE, {"offset": "center(x)"}, r"cannot use center"),
        ("center(y) ~ x", "gaussian", TABLE, {}, r"cannot use center"),
        ("y ~ x + I(2 * x)", "gaussian", TABLE, {}, r"'I\(2 \* x\)' is a multiple of 'x', up to a constant"),
        ("y ~ a + C(a)", "gaussian", TABLE, {}, r"'C\(a\)\[T\.q\]' is a multiple of 'a\[T\.q\]'"),
        ("y ~ x + z + I(x + 3*z)", "gaussian", TABLE, {}, r"'I\(x \+ 3 \* z\)' is a linear combination of 'x', 'z'"),
        ("y ~ many + a:many + C(many)", "gaussian", TABLE, {}, r"'C\(many\)\[T\.L01\]' is a multiple of 'many"),
        ("y ~ x + k", "gaussian", TABLE.assign(k=2), {}, r"'k' is the same in all rows, as the intercept is"),
        ("y ~ 0 + x + I(x - x)", "gaussian", TABLE, {}, r"'I\(x - x\)' is 0 in all rows"),
        ("y ~ C(x) + z", "gaussian", TABLE.loc[:0], {}, r"has one level"),
        ("y ~ a", "gaussian", with_row("a", 5, 3), {}, r"holds values of type int, str; texts are expected"),
        ("y ~ a", "gaussian", MIXED, {}, r"'a' has mixed types: 5 of its 6 .* such as 'oops'\. .* write C\(a\)"),
        ("y ~ x", "gaussian", pandas.concat([TABLE, TABLE[["x"]]], axis=1), {}, r"names \['x'\] occur more than once"),
        ("y ~ x", "gaussian", ARROW.append_column("x", ARROW["x"]), {}, r"names \['x'\] occur more than once"),
        ("y ~ x", "gaussian", TABLE.assign(y=2), {}, r"response 'y' is 2 in all rows, so there is nothing"),
        ("(a == 'Q') ~ x", "bernoulli", TABLE, {}, r"no row of 'a' is 'Q'\. There are 'p', 'q', 'r'\."),
        ("y ~ (many == 'L7')", "gaussian", TABLE, {}, r"is 'L7'\. Did you mean 'L\d7'\? There are .* and others"),
        ("y ~ (x == '1')", "gaussian", TABLE, {}, r"'x' with the text '1', but it holds numbers\. Write the number"),
        ("y ~ (a > 1)", "gaussian", TABLE, {}, r"'a > 1' computes with the column 'a', .* \(a == 'p'\)"),
        ("(x > 1) ~ z", "bernoulli", with_row("x", 3, np.nan), {}, r"'x > 1' has 1, the first in row 3 \(nan\)"),
        ("y ~ C(a, ref='z')", "gaussian", TABLE, {}, r"there is no such level\. There are 'p', 'q', 'r'"),
        ("y ~ C(k, ref=9)", "gaussian", TABLE, {}, r"there is no such level\. There are 0, 1, 2"),
        ("b ~ x", "poisson", TABLE, {}, r"holds text: 'u', 'v'\. Pass family='bernoulli' .* \(b == 'v'\) ~"),
        ("a ~ x", "gamma", TABLE, {}, r"holds text: 'p', 'q', 'r'\. Pass family='categorical'"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_refused_in_words(formula, family, data, options, told):
    with pytest.raises(lwa.InputError, match=told):
        lwa.glm(formula, family, **options).bind(data)


def test_large_numbers_that_vary_little_are_not_collinear():
    data = {"y": TABLE["y"].to_numpy(), "when": 1.7e9 + 1e4 * TABLE["x"].to_numpy()}
    assert bound_to("y ~ when", data=data).names == ["Intercept", "when"]


# Fits


def mode(glm, data):
    """θ̂ and the sds of the Gaussian at it, on the flat vector."""
    layout = lay_out(glm, data)
    with jax.enable_x64(True):
        found = find_reference(layout.model, layout.full, layout.model.ravel(layout.model.init), seed=1)
    return found.theta, np.sqrt(np.diag(np.linalg.inv(found.precision)))


def simulated(family, rows, seed, beta=(0.3, 0.5, -0.4)):
    rng = np.random.default_rng(seed)
    x, group = rng.normal(size=rows), rng.choice(["one", "two"], rows)
    eta = beta[0] + beta[1] * x + beta[2] * (group == "two")
    n = rng.integers(1, 8, rows)
    y = {
        "gaussian": lambda: eta + 0.8 * rng.normal(size=rows),
        "student_t": lambda: eta + 0.8 * rng.standard_t(4, size=rows),
        "bernoulli": lambda: rng.random(rows) < 1 / (1 + np.exp(-eta)),
        "binomial": lambda: rng.binomial(n, 1 / (1 + np.exp(-eta))),
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "negative_binomial": lambda: rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, rows)),
        "gamma": lambda: rng.gamma(3.0, np.exp(eta) / 3.0),
    }[family]()
    return {"x": x, "group": group, "n": n, "y": y}


def test_least_squares():
    data = simulated("gaussian", 5000, 1)
    theta, sd = mode(lwa.glm("y ~ x + group", priors="flat"), data)
    X = np.column_stack([np.ones(5000), data["x"], data["group"] == "two"])
    beta, (rss,), *_ = np.linalg.lstsq(X, data["y"])
    np.testing.assert_allclose(theta[:3], beta, atol=1e-2 * sd[:3].min())
    # Flat in σ is density σ of log σ: the mode solves N - 1 = RSS/σ².
    sigma2 = rss / 4999
    np.testing.assert_allclose(theta[3], 0.5 * np.log(sigma2), atol=1e-2 * sd[3])
    np.testing.assert_allclose(sd[:3], np.sqrt(sigma2 * np.diag(np.linalg.inv(X.T @ X))), rtol=1e-3)


@pytest.mark.parametrize("family", ["bernoulli", "binomial", "poisson"])
def test_maximum_likelihood_is_that_of_statsmodels(family):
    sm = pytest.importorskip("statsmodels.api")
    data = simulated(family, 20_000, 2)
    theta, sd = mode(lwa.glm("y ~ x + group", family, priors="flat", **trials_of(family)), data)
    X = np.column_stack([np.ones(20_000), data["x"], data["group"] == "two"])
    y = np.column_stack([data["y"], data["n"] - data["y"]]) if family == "binomial" else np.asarray(data["y"], float)
    theirs = sm.GLM(y, X, family=sm.families.Poisson() if family == "poisson" else sm.families.Binomial()).fit()
    np.testing.assert_allclose(theta, theirs.params, atol=1e-2 * theirs.bse.min())
    np.testing.assert_allclose(sd, theirs.bse, rtol=1e-3)


def trials_of(family):
    return {"trials": "n"} if family == "binomial" else {}


def test_uncentred_columns_find_their_mode():
    rng = np.random.default_rng(3)
    year, distance = rng.integers(1990, 2024, 4000), rng.uniform(100, 5000, 4000)
    y = 0.02 * (year - 2000) + 1e-4 * distance + rng.normal(size=4000)
    theta, sd = mode(lwa.glm("y ~ year + distance", priors="flat"), {"y": y, "year": year, "distance": distance})
    X = np.column_stack([np.ones(4000), year, distance])
    np.testing.assert_allclose((theta[:3] - np.linalg.lstsq(X, y)[0]) / sd[:3], 0.0, atol=0.02)


def test_a_separated_coefficient_is_named():
    rng = np.random.default_rng(4)
    data = {"y": rng.random(2000) < 0.3, "x": rng.normal(size=2000), "rare": rng.random(2000) < 0.05}
    data["y"][data["rare"]] = False
    with pytest.raises(lwa.ModelError, match=r"No mode .*: beta\[rare\[T\.True\]\] kept changing.*perfectly separated"):
        mode(lwa.glm("y ~ x + rare", "bernoulli", priors="flat"), data)
    theta, _ = mode(lwa.glm("y ~ x + rare", "bernoulli"), data)  # weak priors are proper
    assert np.isfinite(theta).all()


def test_sample_binds_and_labels():
    data = pandas.DataFrame(simulated("bernoulli", 3000, 5))
    glm = lwa.glm("y ~ x + group", "bernoulli")
    fit = lwa.sample(glm, data, subset_size=100, draws=200, tune=200, chains=2, seed=1, progress=False)
    assert fit.coords["coefficient"] == ["Intercept", "x", "group[T.two]"]
    theta, sd = mode(glm, data)
    away = (fit.posterior["beta"].mean((0, 1)) - theta) / sd
    assert np.abs(away).max() < 0.5  # 400 draws, of which a fourth may be worth one: 0.1, and the mode is not the mean
    assert lwa.certify(glm, data, fit, progress=False).shift.shape == (3,)
    for draws in (fit, fit.idata):
        with pytest.raises(lwa.InputError, match=r"labels along 'coefficient': 'group\[T\.two\]' is only in one"):
            lwa.certify(glm, data.replace({"group": {"two": "zwei"}}), draws, progress=False)


@pytest.mark.slow
def test_rivals_and_comparisons_bind_too():
    data = simulated("poisson", 500, 6)
    glm = lwa.glm("y ~ x + group", "poisson")
    fit = lwa.rivals.sample("metropolis", glm, data, draws=20, tune=20, chains=2, seed=1, progress=False)
    assert fit.posterior["beta"].shape == (2, 20, 3)
    found = lwa.compare(glm, data, ["metropolis"], budget=lwa.RowReads(10**6), chains=2, seed=1, progress=False)
    assert list(found.fits) == ["metropolis"]


# Derivatives through linear predictors


@pytest.mark.parametrize(
    ("formula", "family", "options"),
    [
        ("y ~ x + many", "gaussian", {}),
        pytest.param("y ~ x*many + a", "student_t", {}, marks=pytest.mark.slow),
        pytest.param("flag ~ many + many:x + z", "bernoulli", {"weights": "z"}, marks=pytest.mark.slow),
        ("flag ~ 0 + many + a:many", "bernoulli", {"link": "probit"}),
        pytest.param("k ~ x + many", "binomial", {"trials": 2}, marks=pytest.mark.slow),
        pytest.param("k ~ many*a + offset(log(z))", "poisson", {}, marks=pytest.mark.slow),
        pytest.param("k ~ a + x", "negative_binomial", {}, marks=pytest.mark.slow),
        pytest.param("z ~ 0 + x:many", "gamma", {"weights": "z"}, marks=pytest.mark.slow),
        pytest.param("a ~ x + many", "categorical", {"offset": "x"}, marks=pytest.mark.slow),
        pytest.param("a ~ 1", "categorical", {}, marks=pytest.mark.slow),
    ],
)
def test_derivatives_through_predictors_are_those_of_all_parameters(formula, family, options):
    """Sums of values, gradients and curvature, and gradients at many θ: beside JAX's own in each of d parameters."""
    bound = bound_to(formula, family, **options)
    model, d = bound.model, bound.model.dimension
    plain = replace(model, predictors=None)
    batch = bound.rows.take(np.arange(150))
    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        start = model.ravel(model.init)
        counts = rng.integers(0, 3, 150).astype(float)
        for theta in start + 0.3 * rng.normal(size=(3, d)):
            ours, theirs = (sum_batches(one, [batch], theta, counts) for one in (model, plain))
            for mine, other in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9 * np.abs(other).max())
        points = start + 0.3 * rng.normal(size=(7, d))
        places = Places(points, points[:2], points[3:])
        zero = ScoreSums(np.zeros(2), np.zeros((7, d)), np.zeros(4))
        filled = fill_up(batch, 200, np.float64)
        ours, theirs = (add_block(one, zero, places, *filled) for one in (model, plain))
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9 * float(np.abs(other).max()))
