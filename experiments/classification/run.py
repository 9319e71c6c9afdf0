"""Binary classification: LWA-MCMC and MHSubLhd learn two normal classes from 10⁷ rows, from the same prior draws.

python -m experiments.classification.run --scale paper
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import lwa
from experiments.classification import tables
from experiments.classification.figures import observations, scenarios
from experiments.classification.laws import Law, posterior_of
from experiments.classification.model import (
    MODEL,
    PROPOSAL,
    error_rate,
    prior_draws,
    range_bound,
    theta_of,
    truth,
    vector_of,
)
from experiments.classification.paths import Path, Scenario, path_of
from experiments.classification.simulate import box_of, simulate
from experiments.exhibit import CHUNK, Out, command

READINGS = {"sd": 0.25, "variance": 0.5}
"""σ of both readings of the paper's σ₂ = .25."""
SUBSET = 1000
"""n, and the rows of MHSubLhd's first look."""


@dataclass(frozen=True)
class Size:
    """What differs between scales. MHSubLhd adapts all along, as the paper does, so that all of its run is tune."""

    rows: int  # of training, and as many of test
    scenarios: Mapping[str, int]  # by reading
    lwa: Mapping[str, Any]  # how long it runs
    rival: Mapping[str, Any]
    moments: int  # at which errors are measured


SECONDS, RIVAL_SECONDS = 60, 120
"""Of each run. The paper does not say how long its own were; MHSubLhd needs more of them to arrive."""
SIZES = {
    "paper": Size(
        rows=10**7,
        scenarios={"sd": 4, "variance": 1},
        lwa={"tune": 20_000, "draws": "auto", "budget": SECONDS},
        rival={"tune": 10**6, "draws": 1, "budget": 2 * RIVAL_SECONDS},  # tune ends with half of a budget
        moments=80,
    ),
    "small": Size(
        rows=10**5,
        scenarios={"sd": 2, "variance": 1},
        lwa={"tune": 5000, "draws": 200},
        rival={"tune": 1000, "draws": 1},
        moments=25,
    ),
}


@dataclass(frozen=True)
class Setting:
    """Rows of one reading of σ₂, and how far MHSubLhd may expect them to reach."""

    reading: str
    sigma: float
    rows: Mapping[str, Mapping[str, Any]]  # "train" and "test"
    bound: Callable[[Any, Any], Any]


class Findings(NamedTuple):
    """What tests look at."""

    scenarios: dict[str, list[Scenario]]  # by reading of σ₂
    laws: list[Law]  # beside the posterior of all rows
    data: dict[str, dict[str, Any]]  # training rows by reading


def run(size: Size, seed: int, out: Out) -> Findings:
    """Both readings, all scenarios."""
    starts = prior_draws(max(size.scenarios.values()), np.random.default_rng([seed, 2]))
    settings, found = {}, {}
    for reading, sigma in READINGS.items():
        with out.stage(f".25 as {reading}: rows"):
            rows = {purpose: simulate(purpose, size.rows, sigma, seed) for purpose in ("train", "test")}
            settings[reading] = Setting(reading, sigma, rows, range_bound(box_of(rows["train"])))
        found[reading] = [
            compare(settings[reading], number, starts[number - 1], size, seed, out)
            for number in range(1, size.scenarios[reading] + 1)
        ]
    train = settings["sd"].rows["train"]
    with out.stage("laws beside the posterior of all rows"):
        laws = laws_of(found["sd"][0], train, seed)
    with out.stage("figures and tables"):
        out.figure("observations", observations(train, truth(READINGS["sd"])))
        out.figure("scenarios", scenarios(found["sd"]))
        out.table("rows", *tables.rows(found["sd"], size.rows))
        out.table("convergence", *tables.convergence(found))
        out.table("readings", *tables.readings(found))
        out.table("laws", *tables.laws(laws))
    return Findings(found, laws, {reading: one.rows["train"] for reading, one in settings.items()})


def compare(setting: Setting, number: int, start: NDArray[np.float64], size: Size, seed: int, out: Out) -> Scenario:
    """One scenario."""
    name, train = f".25 as {setting.reading}, scenario {number}", setting.rows["train"]
    shared = {
        "chains": 1, "seed": seed + number, "initvals": theta_of(start), "kernel": PROPOSAL, "keep_tune": True,
        "progress": False,
    }  # fmt: skip
    with out.stage(f"{name}: LWA-MCMC"):
        lwa_fit = lwa.sample(
            MODEL, train, target="subposterior", subset_size=SUBSET, epsilon=0.01,
            summary=lwa.summaries.Counts("class"), **shared, **size.lwa,
        )  # fmt: skip
    with out.stage(f"{name}: MHSubLhd"):
        rival_fit = lwa.rivals.sample(
            "confidence", MODEL, train, delta=0.1, batch=SUBSET, growth="linear", range_bound=setting.bound,
            reference=False, **shared, **size.rival,
        )  # fmt: skip
    paths = {"lwa": path_of(lwa_fit, start, reads=1), "rival": path_of(rival_fit, start, reads=2)}
    with out.stage(f"{name}: errors"):
        first, last = (function(path.seconds[at] for path in paths.values()) for function, at in ((min, 1), (max, -1)))
        times = np.geomspace(first, last, size.moments)
        errors = {}
        for purpose, rows in setting.rows.items():
            held = {column: jnp.asarray(values) for column, values in rows.items()}
            for sampler, path in paths.items():
                errors[sampler, purpose] = errors_in_time(path, times, held)
    return Scenario(setting.sigma, paths, times, errors)


def errors_in_time(path: Path, times: NDArray[np.float64], rows: Mapping[str, Any]) -> NDArray[np.float64]:
    """Error rates of the real-time classifier; where θ has not moved in between they are the same."""
    places, again = np.unique(path.at(times), return_inverse=True)
    return np.array([error_rate(theta, rows, min(CHUNK, len(rows["class"]))) for theta in path.theta[places]])[again]


def laws_of(scenario: Scenario, rows: Mapping[str, Any], seed: int) -> list[Law]:
    """The last halves of both samplers' paths, and, beyond the paper, lwa's calibrated draws with the same n."""
    exact = posterior_of(rows)
    fit = lwa.sample(MODEL, rows, subset_size=SUBSET, seed=seed, progress=False)
    calibrated = vector_of(fit.posterior).reshape(-1, len(exact.mean))
    halves = {name: path.theta[path.at(path.seconds[-1:] / 2)[0] :] for name, path in scenario.paths.items()}
    return [
        exact.law_of("LWA-MCMC, as in the paper", halves["lwa"]),
        exact.law_of("MHSubLhd", halves["rival"]),
        exact.law_of("lwa, calibrated", calibrated),
    ]


if __name__ == "__main__":
    command("classification", run, SIZES, __doc__)
