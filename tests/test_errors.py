"""What is raised and warned of carries the arguments that its text says to pass."""

import pickle
import warnings

import numpy as np
import pytest

import lwa
from lwa.errors import LwaError, LwaWarning, describe_arguments, warn

ADVICE = {"subset_size": 4000, "target": "powered"}


def test_advice_is_empty_unless_given():
    assert LwaError("why").advice == LwaWarning("why").advice == lwa.DataError("why").advice == {}


@pytest.mark.parametrize("kind", [lwa.LwaError, lwa.InputError, lwa.ModelError, lwa.LwaWarning])
def test_advice_stays_beside_the_text(kind):
    made = kind("what came, what to type", advice=ADVICE)
    assert str(made) == "what came, what to type"
    assert made.advice == ADVICE
    back = pickle.loads(pickle.dumps(made))  # as an error that a worker sends home
    assert (str(back), back.advice) == (str(made), made.advice)


def test_a_warning_is_shown_once_at_its_line_and_holds_the_advice():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(2):
            warn("something", ADVICE)
    (one,) = seen
    assert (one.category, str(one.message), one.message.advice) == (LwaWarning, "something", ADVICE)
    assert one.filename == __file__


def test_arguments_in_words():
    assert describe_arguments(ADVICE) == "subset_size=4000, target='powered'"


def test_a_refusal_says_which_arguments_would_do():
    """The call that an error advises runs."""
    model = lwa.Model(lambda theta, y: -0.5 * (y - theta) ** 2, lambda theta: -0.5 * theta**2, 0.0)
    y, options = np.random.default_rng(1).normal(size=50), {"draws": 20, "tune": 32, "seed": 1, "progress": False}
    with pytest.raises(lwa.InputError, match="subset_size=1000 exceeds the 50 rows") as refused:
        lwa.sample(model, y, subset_size=1000, **options)
    assert refused.value.advice == {"subset_size": 50}
    assert lwa.sample(model, y, **options, **refused.value.advice).draws == 20


def test_a_run_warns_at_the_line_that_called_it():
    model = lwa.Model(lambda theta, y: -0.5 * (y - theta) ** 2, lambda theta: -0.5 * theta**2, 0.0)
    with pytest.warns(LwaWarning, match="Stopped early") as seen:
        lwa.sample(model, np.zeros(50), budget=lwa.RowReads(10_000), subset_size=50, seed=1, progress=False)
    assert {one.filename for one in seen} == {__file__}
