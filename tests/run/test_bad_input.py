"""Every bad input is refused in one sentence that says what came and what to type."""

import inspect
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lwa
from lwa.kernels import RandomWalk
from lwa.subsets import Swap
from lwa.summaries import Counts, PerRow
from tests.support import MODEL, SEVERAL, N, Y, log_likelihood, log_prior, run, sample

NAN, INF = float("nan"), float("inf")


def with_values(indices, value):
    data = Y.copy()
    data[indices] = value
    return data


def refusal(kind, fragments, call, *args, **options):
    """The message of the error that the call raises, once its type and its fragments are checked."""
    with pytest.raises(lwa.LwaError) as caught:
        call(*args, **options)
    assert type(caught.value) is kind
    message = str(caught.value)
    for fragment in fragments:
        assert fragment in message
    assert isinstance(caught.value, lwa.InputError)
    assert "jax/_src" not in "".join(traceback.format_exception(caught.value))
    return message


@pytest.mark.parametrize(
    ("data", "fragments"),
    [
        pytest.param(np.empty(0), ["empty (shape (0,))", "Pass at least one row"], id="no rows"),
        pytest.param([], ["empty (shape (0,))", "Pass at least one row"], id="an empty list"),
        pytest.param({}, ["no columns", "Pass at least one"], id="no columns"),
        pytest.param(None, ["NoneType", "Pass an array"], id="None"),
        pytest.param((i for i in range(3)), ["generator", "Pass an array"], id="a generator"),
        pytest.param(3.0, ["single number 3.0", "Pass [value]"], id="a number"),
        pytest.param([[1, 2], [3]], ["list", "Pass rows of equal length"], id="ragged"),
        pytest.param({"x": Y, "y": Y[:150]}, ["'x': 200, 'y': 150", "Pass arrays that share"], id="unequal lengths"),
        pytest.param(with_values([7, 9], NAN), ["has 2, the first in row 7", "Drop those rows"], id="NaN"),
        pytest.param(with_values([3], -INF), ["has 1, the first in row 3", "Drop those rows"], id="inf"),
        pytest.param(np.full(N, "a"), ["dtype <U1", "Encode it as numbers"], id="strings"),
        pytest.param({"y": Y, "g": np.full(N, "a")}, ["'g'", "<U1", "Encode it"], id="a column of strings"),
        pytest.param(np.full(N, None), ["dtype object", "Convert it with"], id="objects"),
        pytest.param("/nowhere/rows.npy", ["'/nowhere/rows.npy' does not exist", "Pass the path"], id="a missing file"),
    ],
)
def test_data(data, fragments):
    refusal(lwa.DataError, fragments, sample, data=data)


@pytest.mark.parametrize(
    ("spoil", "fragments"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-100]), ["cut short", "1628 bytes"]),
        (lambda file: file.write_bytes(file.read_bytes()[:20]), ["is not a .npy file", "np.save"]),
        (lambda file: file.write_bytes(b""), ["is not a .npy file", "np.save"]),
        (lambda file: np.save(file, np.array([None, 1.0])), ["Python objects", "np.save"]),
        (lambda file: (file.unlink(), file.mkdir()), ["is a folder", "Pass the path of one file"]),
    ],
    ids=["truncated", "half a header", "no bytes", "pickled", "a folder"],
)
def test_a_spoilt_file(tmp_path, spoil, fragments):
    file = tmp_path / "rows.npy"
    np.save(file, Y)
    spoil(file)
    refusal(lwa.DataError, [str(file), *fragments], sample, data=file)


def test_a_subset_larger_than_the_data():
    message = refusal(lwa.InputError, [], sample, data=Y[:120], subset_size=500)
    assert message == "subset_size=500 exceeds the 120 rows of the data. Pass subset_size <= 120."


NAMED = {
    "target": ["'powered'", "'subposterior'"],
    "subset_weight": ["'gaussian'", "'laplace'", "'epanechnikov'"],
    "subset_move": ["lwa.subsets.Swap(k)", "lwa.subsets.Free()", "lwa.subsets.Fixed()"],
    "summary": ["'auto'", "lwa.summaries.PerRow(function)", "lwa.summaries.Counts(column)"],
    "kernel": ["'auto'", *(f"lwa.kernels.{name}(...)" for name in ("RandomWalk", "Blockwise", "HMC", "NUTS"))],
    "precision": ["'auto'", "'float32'", "'float64'"],
    "epsilon": ["a positive number", "'auto'"],
    "thinning": ["a whole number >= 1", "'auto'"],
}


@pytest.mark.parametrize("value", ["tiny", 0j, np.arange(2)], ids=["a word", "a number", "an array"])
@pytest.mark.parametrize("option", NAMED)
def test_an_unknown_name(option, value):
    fragments = [f"{option}={value!r}", *NAMED[option], f"Pass {option}="]
    refusal(lwa.InputError, fragments, run, **{option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("subset_size", value) for value in (0, -1, 2.5, True, "many")),
        *(("draws", value) for value in (0, -1, 2.5, True)),
        *(("chains", value) for value in (0, 1.5)),
        *(("tune", value) for value in (-1, "long")),
        *(("thinning", value) for value in (0, 1.5)),
        *(("refresh_steps", value) for value in (0, -2)),
        *(("epsilon", value) for value in (0, -1.0, NAN, True)),
        *(("seed", value) for value in (-1, 1.5, "one", True)),
        *(("budget", value) for value in ("soon", -3, 0, "0 s", "10 weeks", "-5 min", NAN, True, [60])),
    ],
)
def test_a_number_that_cannot_be_meant(option, value):
    refusal(lwa.InputError, [f"{option}={value!r}", "Pass "], run, **{option: value})


@pytest.mark.parametrize(
    ("make", "fragments"),
    [
        (lambda: Swap(0), ["Swap(k=0)", "Swap(1)"]),
        (lambda: Swap(1.5), ["Swap(k=1.5)", "Swap(1)"]),
        (lambda: run(subset_move=Swap(21)), ["Swap(21)", "subset_size=20", "k <= 20"]),
        (lambda: RandomWalk(target_accept=2), ["target_accept=2", "Pass target_accept=0.3"]),
        (lambda: RandomWalk(scale=0.0), ["scale=0.0", "Pass scale=0.1"]),
        (lambda: lwa.RowReads(0), ["RowReads(0)", "Pass lwa.RowReads(10**9)"]),
        (lambda: lwa.RowReads("many"), ["RowReads('many')", "Pass lwa.RowReads(10**9)"]),
        (lambda: lwa.RowReads(True), ["RowReads(True)", "Pass lwa.RowReads(10**9)"]),
        (lambda: sample(model=log_likelihood), ["model is of type function", "Pass a lwa.Model("]),
        (lambda: sample(model=None), ["model is of type NoneType", "Pass a lwa.Model("]),
    ],
)
def test_an_object_that_cannot_be_meant(make, fragments):
    refusal(lwa.InputError, fragments, make)


def raises(mu, y):
    raise RuntimeError("the tide is out")


def fails_inside_jax(mu, y):
    return jnp.dot(mu * jnp.ones(3), y)


def uses_numpy(mu, y):
    return np.log(y - mu).reshape(7)


@jax.jit
def branches(mu, y):
    if mu > 0:
        return y
    return -y


IN_JAX = "must be written with jax.numpy"


@pytest.mark.parametrize(
    ("function", "fragments"),
    [
        (raises, ["RuntimeError", "the tide is out", 'raise RuntimeError("the tide is out")']),
        (fails_inside_jax, ["TypeError", "jnp.dot(mu * jnp.ones(3), y)"]),
        (uses_numpy, ["ValueError", "np.log(y - mu).reshape(7)", "cannot reshape"]),
        (branches, ["if mu > 0:", IN_JAX]),
    ],
)
def test_a_log_likelihood_that_raises(function, fragments):
    written = inspect.unwrap(function).__code__
    line = written.co_firstlineno + (2 if function is branches else 1)
    where = f"test_bad_input.py, line {line}"
    with pytest.raises(lwa.ModelError) as caught:
        sample(lwa.Model(function, log_prior, 0.0))
    message = str(caught.value)
    for fragment in ["log_likelihood raised", "5 rows", where, *fragments]:
        assert fragment in message
    cause = caught.value.__cause__
    frames = [frame.filename for frame in traceback.extract_tb(cause.__traceback__)]
    assert frames == [__file__]
    assert "jax/_src" not in "".join(traceback.format_exception(caught.value))


def test_a_log_prior_that_raises():
    def prior(mu):
        raise RuntimeError("no prior today")

    fragments = ["log_prior raised RuntimeError", "no prior today", "test_bad_input.py"]
    refusal(lwa.ModelError, fragments, sample, lwa.Model(log_likelihood, prior, 0.0))


def constant(value):
    return lambda mu, y: jnp.full_like(y, value)


@pytest.mark.parametrize(
    ("function", "fragments"),
    [
        pytest.param(lambda mu, y: jnp.stack([y, y], 1), ["shape (5, 2)", "shape (5,), is expected"], id="(n, 2)"),
        pytest.param(lambda mu, y: y[:, None], ["shape (5, 1)", "shape (5,), is expected"], id="(n, 1)"),
        pytest.param(lambda mu, y: jnp.sum(y), ["single number for 5 rows", "not their sum"], id="a sum"),
        pytest.param(lambda mu, y: 1.0, ["single number for 5 rows", "not their sum"], id="a constant"),
        pytest.param(lambda mu, y: jnp.zeros(5) + mu, ["shape (5,) for 1 rows"], id="always five"),
        pytest.param(lambda mu, y: jnp.ones_like(y, int), ["int", "floats) are expected"], id="integers"),
        pytest.param(lambda mu, y: y > mu, ["bool", "floats) are expected"], id="booleans"),
        pytest.param(lambda mu, y: y + 0j, ["complex64", "floats) are expected"], id="complex"),
        pytest.param(lambda mu, y: None, ["returned NoneType", "Return an array"], id="None"),
        pytest.param(lambda mu, y: [y], ["returned list", "Return an array"], id="a list"),
        pytest.param(lambda mu, y: {"y": y}, ["returned dict", "Return an array"], id="a dict"),
        pytest.param(lambda mu, y: "high", ["log_likelihood raised TypeError", "str"], id="a string"),
        pytest.param(constant(NAN), ["Chain 0", "{'theta': 0.0}", "NaN in 20 of 20 rows", "Pass initvals"], id="NaN"),
    ],
)
def test_a_log_likelihood_that_returns_something_else(function, fragments):
    refusal(lwa.ModelError, fragments, sample, lwa.Model(function, log_prior, 0.0))


@pytest.mark.parametrize("precision", ["float32", "float64", "auto"])
@pytest.mark.parametrize(("value", "fragment"), [(-INF, "-inf in 20 of 20 rows"), (INF, "+inf in 20 of 20 rows")])
def test_a_log_likelihood_that_is_infinite_everywhere(value, fragment, precision):
    model = lwa.Model(constant(value), log_prior, 0.0)
    refusal(lwa.ModelError, ["Chain 0", fragment, "Pass initvals"], sample, model, precision=precision)


@pytest.mark.parametrize(
    ("function", "fragments"),
    [
        pytest.param(lambda mu: jnp.zeros(3), ["shape (3,)", "jnp.sum"], id="a vector"),
        pytest.param(lambda mu: jnp.zeros(1), ["shape (1,)", "jnp.sum"], id="a vector of one"),
        pytest.param(lambda mu: [mu], ["returned list", "jnp.sum"], id="a list"),
        pytest.param(lambda mu: None, ["returned NoneType", "a single number"], id="None"),
        pytest.param(lambda mu: mu > 0, ["bool", "jnp.where(inside, 0.0, -jnp.inf)"], id="an indicator"),
        pytest.param(lambda mu: mu + 0j, ["complex", "a real number"], id="complex"),
        pytest.param(lambda mu: mu * NAN, ["log_prior is nan", "Pass initvals"], id="NaN"),
        pytest.param(lambda mu: jnp.where(mu > 1.0, 0.0, -INF), ["log_prior is -inf", "{'theta': 0.0}"], id="outside"),
    ],
)
def test_a_log_prior_that_returns_something_else(function, fragments):
    refusal(lwa.ModelError, fragments, sample, lwa.Model(log_likelihood, function, 0.0))


@pytest.mark.parametrize("init", [{}, [], None, {"a": None}])
def test_an_init_without_parameters(init):
    refusal(lwa.ModelError, [f"init={init!r}", "Pass a theta"], lwa.Model, log_likelihood, log_prior, init)


@pytest.mark.parametrize("init", ["a", {"a": "b"}, np.array(["a"]), 1j, True, object()])
def test_an_init_that_is_not_real(init):
    refusal(lwa.ModelError, ["is not a real number"], lwa.Model, log_likelihood, log_prior, init)


@pytest.mark.parametrize("field", ["log_likelihood", "log_prior", "prior_draw"])
def test_a_model_of_something_that_is_no_function(field):
    fields = {"log_likelihood": log_likelihood, "log_prior": log_prior, "init": 0.0} | {field: 3}
    refusal(lwa.ModelError, [f"{field}=3 is not a function", "Pass "], lwa.Model, **fields)


@pytest.mark.parametrize(
    ("labels", "fragments"),
    [
        ({"dims": {"gamma": ["a"]}}, ["'gamma'", "not a parameter", "'mu'"]),
        ({"dims": {"beta": ["a", "b"]}}, ["dims['beta']=['a', 'b']", "shape is (3,)", "a list of 1"]),
        ({"dims": {"beta": "a"}}, ["dims['beta']='a'", "a list of 1"]),
        ({"dims": {"beta": ["draw"]}}, ["dims['beta']=['draw']", "none of them"]),
        ({"dims": {"beta": ["mu"]}}, ["dims['beta']=['mu']", "none of them"]),
        ({"dims": {"beta": ["a"], "deep.loading": ["a", "b"]}}, ["'a'", "lengths 3 and 2"]),
        ({"dims": {"beta": ["a"]}, "coords": {"a": [1, 2]}}, ["coords['a'] holds 2 labels", "length 3"]),
    ],
)
def test_labels_that_do_not_fit(labels, fragments):
    model = lwa.Model(SEVERAL.log_likelihood, SEVERAL.log_prior, SEVERAL.init, **labels)
    refusal(lwa.ModelError, fragments, sample, model)


def test_a_parameter_named_as_an_axis():
    model = lwa.Model(lambda theta, y: y, lambda theta: 0.0, {"chain": 0.0})
    refusal(lwa.ModelError, ["'chain'", "Pass another name"], sample, model)


@pytest.mark.parametrize(
    ("initvals", "kind", "fragments"),
    [
        ({"a": 1.0}, lwa.InputError, ["no theta of this model", "a list of 2", "built like init"]),
        ([1.0, 2.0, 3.0], lwa.InputError, ["3 starts for 2 chains", "Pass 2, or one theta"]),
        ([], lwa.InputError, ["0 starts for 2 chains", "Pass 2, or one theta"]),
        (np.zeros(3), lwa.ModelError, ["initvals gave", "shape (3,)", "Pass numbers built like init"]),
        ([0.0, np.zeros(2)], lwa.ModelError, ["initvals[1] gave", "shape (2,)", "built like init"]),
        ("high", lwa.ModelError, ["initvals gave 'high'", "Pass numbers built like init"]),
        ([0.0, "high"], lwa.ModelError, ["initvals[1] gave 'high'", "Pass numbers built like init"]),
        (NAN, lwa.ModelError, ["Chain 0", "{'theta': nan}", "log_prior is nan", "Pass initvals"]),
        ([0.0, INF], lwa.ModelError, ["Chain 1", "{'theta': inf}", "log_prior is -inf", "Pass initvals"]),
    ],
)
def test_initvals(initvals, kind, fragments):
    refusal(kind, fragments, run, initvals=initvals)


def bad_prior_draw(key):
    raise RuntimeError("the urn is empty")


@pytest.mark.parametrize(
    ("function", "fragments"),
    [
        (bad_prior_draw, ["prior_draw raised RuntimeError", "the urn is empty", "test_bad_input.py"]),
        (lambda: 0.0, ["prior_draw raised TypeError"]),
        (lambda key: {"mu": 0.0}, ["prior_draw gave {'mu': 0.0}", "structure", "built like init"]),
        (lambda key: None, ["prior_draw gave None", "structure", "built like init"]),
        (lambda key: jnp.zeros(2), ["prior_draw gave", "shape (2,)", "built like init"]),
        (lambda key: "high", ["prior_draw gave 'high'", "built like init"]),
    ],
    ids=["raises", "takes no key", "another structure", "None", "another shape", "a string"],
)
def test_prior_draw(function, fragments):
    refusal(lwa.ModelError, fragments, sample, lwa.Model(log_likelihood, log_prior, 0.0, prior_draw=function))


def bad_summary(rows):
    raise RuntimeError("nothing to sum up")


@pytest.mark.parametrize(
    ("summary", "fragments"),
    [
        pytest.param(PerRow(bad_summary), ["RuntimeError: nothing to sum up", "must return one"], id="raises"),
        pytest.param(PerRow(lambda y: y.sum()), ["shape () for 200 rows", "not a sum over rows"], id="a sum"),
        pytest.param(PerRow(lambda y: y[:3]), ["shape (3,) for 200 rows", "(200, s) is expected"], id="wrong length"),
        pytest.param(PerRow(lambda y: y[:, None, None]), ["shape (200, 1, 1)", "vector per row"], id="three axes"),
        pytest.param(PerRow(lambda y: np.eye(len(y))), ["20 numbers per row", "200 for another batch"], id="growing"),
        pytest.param(PerRow(lambda y: y * NAN), ["200 of 200 rows", "first for row 0", "Return finite"], id="NaN"),
        pytest.param(PerRow(lambda y: None), ["Return one number or vector per row"], id="None"),
        pytest.param(np.mean, ["bare function", "Pass summary=lwa.summaries.PerRow(function)"], id="bare"),
        pytest.param(Counts("digit"), ["Counts(column='digit')", "Pass the position"], id="a name, no dict"),
        pytest.param(Counts(2), ["Counts(column=2)", "None if the data are one column"], id="a position, no matrix"),
    ],
)
def test_summary(summary, fragments):
    refusal(lwa.InputError, fragments, run, summary=summary)


TABLE = lwa.Model(lambda mu, rows: -0.5 * (rows["y"] - mu) ** 2, log_prior, 0.0)


@pytest.mark.parametrize("column", ["digit", None])
def test_counts_of_an_unknown_column(column):
    fragments = [f"Counts(column={column!r})", "Valid: 'y', 'z'", "no such column"]
    refusal(lwa.InputError, fragments, sample, TABLE, {"y": Y, "z": Y}, summary=Counts(column))


def test_counts_of_a_measurement():
    data = np.random.default_rng(1).normal(size=1500)
    fragments = ["more than 1000 classes", "lwa.summaries.PerRow"]
    refusal(lwa.InputError, fragments, sample, data=data, summary=Counts())


def test_good_input_is_not_refused():
    assert run(tune=0, thinning=1, budget=np.int64(600), seed=np.int64(1)).draws == 20
    assert sample(MODEL, list(Y), thinning=1).draws == 20
