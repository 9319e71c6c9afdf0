"""How often the certificate says pass, warn or fail: exact draws of awkward posteriors, and draws with planted errors.

    python benchmarks/certificate_rates.py                 # 100 seeds each; about twenty minutes on two cores
    python benchmarks/certificate_rates.py --only modes banana --seeds 20

Each case is a posterior whose exact draws are known, so that no sampler is involved. Draws are 4 chains of 2000,
independent unless the case says otherwise. A posterior that needs no data is written as a prior; its rows add nothing.
The skewed posteriors are those of the logarithm of a Poisson rate with a events and a flat prior: log Gamma(a), of
skewness about -1/√a. In some cases the rows are 100,000 counts with unequal exposures, of which the certificate reads a
few thousand; their twins `..._all_rows` read all. Two cases are samplers: PyMC's NUTS and mean-field ADVI on a
regression whose covariates are correlated in pairs, 0.9.
"""

import argparse
import json
import logging
import os
import platform
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import lwa
from lwa.diagnostics import certify as certify_module

HERE = Path(__file__).parent
CHAINS, DRAWS = 4, 2000
WANTED = {
    "exact, pass": ("pass", 0.95),
    "exact, no fail": ("fail", 0.02),
    "wrong": ("pass", 0.05),
    "condemned": ("fail", 0.95),
}
"""What is asked of each kind of case: a verdict, and its least or its largest share."""
AT_LEAST = {"exact, pass", "condemned"}


@dataclass(frozen=True)
class Case:
    """A model, its data, and draws of some law `(chains, draws, d)` for a seed."""

    kind: str
    what: str
    model: lwa.Model
    data: object
    draw: object
    name: str = "theta"
    on_all_rows: bool = False


CASES = {}


def add(name, kind, what, made, draw, parameter="theta", *, on_all_rows=False):
    CASES[name] = Case(kind, what, *made, draw, parameter, on_all_rows)


def without_data(log_density, d):
    """Return a model whose posterior has this log density, and rows that add nothing."""
    return lwa.Model(lambda theta, rows: 0.0 * rows * theta[0], log_density, init=jnp.ones(d)), np.zeros(100)


def poisson_rate(events):
    rows = (np.arange(1000) < events) * 1.0
    return lwa.Model(lambda t, y: y * t - jnp.exp(t) / 1000, lambda t: 0.0 * t, init=0.0), rows


def log_gamma(rng, a, size=(CHAINS, DRAWS)):
    return np.log(rng.gamma(a, size=size))


def moments_of_log_gamma(a):
    law = stats.loggamma(a)
    return law.mean(), law.std()


def limit_error(a, mirrored):
    """Return by how many sds the 97.5 % limit of the planted draws is off."""
    law = stats.loggamma(a)
    low, high = law.ppf([0.025, 0.975])
    planted = 2 * law.mean() - low if mirrored else law.mean() + law.std() * stats.norm.ppf(0.975)
    return abs(planted - high) / law.std()


for events in (3, 5, 8, 15, 22, 30, 60, 200):
    made = poisson_rate(events)
    mean, sd = moments_of_log_gamma(events)
    add(f"gamma_{events}", "exact, pass", f"exact draws, skewness {stats.loggamma(events).stats('s'):.2f}", made,
        lambda rng, a=events: log_gamma(rng, a))  # fmt: skip
    if (off := limit_error(events, mirrored=False)) >= 0.2:
        add(f"gaussian_for_gamma_{events}", "wrong", f"Gaussian, same mean and sd: 97.5 % limit {off:.2f} sd off",
            made, lambda rng, m=mean, s=sd: m + s * rng.normal(size=(CHAINS, DRAWS)))  # fmt: skip
    if (off := limit_error(events, mirrored=True)) >= 0.2:
        add(f"mirrored_gamma_{events}", "wrong", f"mirrored: 97.5 % limit {off:.2f} sd off", made,
            lambda rng, a=events, m=mean: 2 * m - log_gamma(rng, a))  # fmt: skip


def counts_with_exposures(events):
    """Return a model of 100,000 counts, `events` in all, whose exposures add up to 1: its rate has the law Gamma(a)."""
    rng = np.random.default_rng(12)
    exposure = rng.lognormal(sigma=1.5, size=100_000)
    exposure /= exposure.sum()
    rows = {"y": rng.multinomial(events, exposure) * 1.0, "exposure": exposure}
    return lwa.Model(lambda t, r: r["y"] * t - r["exposure"] * jnp.exp(t), lambda t: 0.0 * t, init=0.0), rows


def add_counts(events, on_all_rows):
    made, (mean, sd) = counts_with_exposures(events), moments_of_log_gamma(events)
    label = f"exposures_{events}" + "_all_rows" * on_all_rows
    words = f"{events} events in 100,000 counts, {'all rows' if on_all_rows else 'some rows'}"
    add(label, "exact, pass", f"exact draws, {words}", made, lambda rng: log_gamma(rng, events),
        on_all_rows=on_all_rows)  # fmt: skip
    add(f"shifted_{label}", "wrong", f"shifted by 0.2 sd, {words}", made,
        lambda rng: log_gamma(rng, events) + 0.2 * sd, on_all_rows=on_all_rows)  # fmt: skip
    if (off := limit_error(events, mirrored=True)) >= 0.2:
        add(f"mirrored_{label}", "wrong", f"mirrored: 97.5 % limit {off:.2f} sd off, {words}", made,
            lambda rng: 2 * mean - log_gamma(rng, events), on_all_rows=on_all_rows)  # fmt: skip


for events in (5, 22, 60):
    for on_all_rows in (False, True):
        add_counts(events, on_all_rows)


def two_modes(rng, apart, share):
    side = np.where(rng.random((CHAINS, DRAWS)) < share, 0.5, -0.5)
    return rng.normal(size=(CHAINS, DRAWS, 1)) + (side * apart)[..., None]


for apart in (6.0, 12.0, 30.0, 100.0):
    for share in (0.5, 0.9):
        made = without_data(
            lambda t, a=apart, p=share: jnp.logaddexp(
                jnp.log(p) - 0.5 * jnp.sum((t - a / 2) ** 2), jnp.log1p(-p) - 0.5 * jnp.sum((t + a / 2) ** 2)
            ),
            1,
        )
        add(f"modes_{apart:.0f}_{share:.0%}", "exact, no fail", f"two modes {apart:.0f} sds apart, {share:.0%} in one",
            made, lambda rng, a=apart, p=share: two_modes(rng, a, p))  # fmt: skip

for df in (3, 5):
    for d in (1, 4):
        made = without_data(lambda t, v=df: -0.5 * (v + 1) * jnp.log1p(t**2 / v).sum(), d)
        add(f"t{df}_{d}", "exact, no fail", f"Student's t({df}), d = {d}", made,
            lambda rng, v=df, d=d: rng.standard_t(v, size=(CHAINS, DRAWS, d)))  # fmt: skip


def banana(rng):
    x = rng.normal(size=(CHAINS, DRAWS, 2))
    x[..., 0] *= 3
    x[..., 1] += 0.1 * (x[..., 0] ** 2 - 9)
    return x


add("banana", "exact, no fail", "a banana",
    without_data(lambda t: -0.5 * t[0] ** 2 / 9 - 0.5 * (t[1] - 0.1 * (t[0] ** 2 - 9)) ** 2, 2), banana)  # fmt: skip


def funnel(rng, d):
    v = 3 * rng.normal(size=(CHAINS, DRAWS, 1))
    return np.concatenate([v, np.exp(v / 2) * rng.normal(size=(CHAINS, DRAWS, d))], -1)


for d in (1, 9):
    made = without_data(
        lambda t, d=d: -(t[0] ** 2) / 18 - 0.5 * jnp.sum(t[1:] ** 2) * jnp.exp(-t[0]) - 0.5 * d * t[0], d + 1
    )
    add(f"funnel_{d + 1}", "exact, no fail", f"Neal's funnel, d = {d + 1}", made, lambda rng, d=d: funnel(rng, d))


def regression(d, rho=0.9):
    """A Gaussian regression of known variance: its posterior is Gaussian. Covariates are correlated in pairs."""
    rng = np.random.default_rng(11)
    x = rng.normal(size=(5000, d))
    x[:, 1::2] = rho * x[:, 0 : d - d % 2 : 2] + np.sqrt(1 - rho**2) * x[:, 1::2]
    data = {"x": x, "y": x @ np.linspace(-1, 1, d) + rng.normal(size=5000)}
    model = lwa.Model(
        lambda theta, rows: -0.5 * (rows["y"] - rows["x"] @ theta["beta"]) ** 2, lambda theta: 0.0,
        {"beta": jnp.zeros(d)},
    )  # fmt: skip
    factor = np.linalg.cholesky(np.linalg.inv(x.T @ x))
    mean = np.linalg.solve(x.T @ x, x.T @ data["y"])
    return (model, data), mean, factor


def correlated(rho, size, rng):
    """Chains of an AR(1) whose every draw is N(0, 1)."""
    z = rng.normal(size=size)
    for t in range(1, size[1]):
        z[:, t] = rho * z[:, t - 1] + np.sqrt(1 - rho**2) * z[:, t]
    return z


def add_regressions():
    for d in (5, 50):
        made, mean, factor = regression(d)
        sd = np.sqrt((factor**2).sum(1))
        one = np.arange(d) == 2

        def exact(rng, m=mean, f=factor, d=d):
            return m + rng.normal(size=(CHAINS, DRAWS, d)) @ f.T

        def independent(rng, m=mean, s=sd, d=d):
            return m + s * rng.normal(size=(CHAINS, DRAWS, d))

        def mean_field(rng, m=mean, f=factor, d=d):
            return m + rng.normal(size=(CHAINS, DRAWS, d)) / np.sqrt(np.diag(np.linalg.inv(f @ f.T)))

        def sticky(rng, m=mean, f=factor, d=d):
            return m + correlated(0.9, (CHAINS, 10 * DRAWS, d), rng) @ f.T

        def few(rng, m=mean, f=factor, d=d):
            return m + correlated(0.995, (CHAINS, DRAWS, d), rng) @ f.T

        wrong = {
            "shifted": ("all shifted by 0.2 sd", lambda rng, e=exact, s=sd: e(rng) + 0.2 * s),
            "shifted_one": ("one parameter shifted by 0.2 sd", lambda rng, e=exact, s=sd * one: e(rng) + 0.2 * s),
            "wide": ("all sds 1.2 times", lambda rng, e=exact, m=mean: m + 1.2 * (e(rng) - m)),
            "narrow": ("all sds 0.83 times", lambda rng, e=exact, m=mean: m + (e(rng) - m) / 1.2),
            "wide_one": ("one sd 1.2 times", lambda rng, e=exact, m=mean, o=one: m + (1 + 0.2 * o) * (e(rng) - m)),
            "uncorrelated": ("right sds, no correlations", independent),
            "mean_field": ("the best Gaussian without correlations", mean_field),
            "few": (f"autocorrelation 0.995: {CHAINS * DRAWS / 399:.0f} effective draws", few),
        }
        add(f"regression_{d}", "exact, pass", f"exact draws of a regression, d = {d}", made, exact, "beta")
        add(f"regression_sticky_{d}", "exact, pass", f"exact, ten times as many, autocorrelation 0.9, d = {d}", made,
            sticky, "beta")  # fmt: skip
        for name, (what, draw) in wrong.items():
            add(f"regression_{name}_{d}", "wrong", f"{what}, d = {d}", made, draw, "beta")


@cache
def regression_in_pymc():
    """The same regression of five parameters in PyMC, with a prior so wide that it says nothing."""
    import pymc as pm

    (_, data), *_ = regression(5)
    with pm.Model() as graph:
        beta = pm.Normal("beta", 0.0, 1e4, shape=5)
        pm.Normal("observed", data["x"] @ beta, 1.0, observed=data["y"])
    return graph


def draw_by_nuts(rng):
    import pymc as pm

    with regression_in_pymc():
        seed = int(rng.integers(2**31))
        idata = pm.sample(DRAWS, tune=1000, chains=CHAINS, cores=1, random_seed=seed, progressbar=False)
    return idata.posterior["beta"].values


def draw_by_advi(rng):
    import pymc as pm

    with regression_in_pymc():
        seed = int(rng.integers(2**31))
        found = pm.fit(20_000, method="advi", random_seed=seed, progressbar=False)
    return found.sample(CHAINS * DRAWS, random_seed=seed).posterior["beta"].values


add_regressions()
add("pymc_nuts", "exact, pass", "PyMC's NUTS, the regression of 5 parameters", regression(5)[0], draw_by_nuts, "beta")
add("pymc_advi", "condemned", "PyMC's mean-field ADVI, the same", regression(5)[0], draw_by_advi, "beta")


@contextmanager
def all_rows():
    """Let certificates read all rows at every draw."""
    kept, certify_module.is_worthwhile = certify_module.is_worthwhile, lambda layout: False
    try:
        yield
    finally:
        certify_module.is_worthwhile = kept


def judge(task):
    """Return the outcome of one certificate, whether a bar of a pass exceeds its tolerance, and the verdict."""
    name, seed = task
    case = CASES[name]
    logging.getLogger("pymc").setLevel(logging.ERROR)
    draws = case.draw(np.random.default_rng([seed, 1]))
    with all_rows() if case.on_all_rows else nullcontext():
        found = lwa.certify(case.model, case.data, {case.name: draws}, progress=False)
    loose = found.passed and any(one.measured > one.tolerance for one in found.findings)
    return name, seed, found.outcome, loose, found.verdict


def holds(kind, shares):
    """Return whether the shares of outcomes are what is asked of this kind of case."""
    verdict, limit = WANTED[kind]
    share = shares.get(verdict, 0.0)
    return share >= limit if kind in AT_LEAST else share <= limit


def read_record(given):
    """Return the cases on record, which those that are measured now replace; refuse a record of other seeds."""
    if not (given.only or given.but) or not given.out.exists():
        return {}
    record = json.loads(given.out.read_text())
    if record["seeds"] != given.seeds:
        raise SystemExit(f"{given.out} is of {record['seeds']} seeds, not {given.seeds}. Pass another file as --out.")
    return record["cases"]


def record_cases(given, before, found):
    """Write what was measured, and what was on record of other cases."""
    cases = {name: (before | found)[name] for name in CASES if name in before or name in found}
    record = {
        "date": date.today().isoformat(),
        "machine": "; ".join(dict.fromkeys(case["machine"] for case in cases.values())),
        "seeds": given.seeds, "chains": CHAINS, "draws": DRAWS, "cases": cases,
    }  # fmt: skip
    given.out.write_text(json.dumps(record, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="parts of names; all cases if not given")
    parser.add_argument("--but", nargs="+", default=[], help="parts of names of cases that are left out")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "certificate_rates.json")
    given = parser.parse_args()
    chosen = [name for name in CASES if not given.only or any(part in name for part in given.only)]
    names = [name for name in chosen if not any(part in name for part in given.but)]
    machine = f"{os.cpu_count()} {platform.machine()} cores, JAX {jax.__version__}"
    before, found, kept = read_record(given), {}, True
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        # All at once, so that no process waits for the last seeds of a case.
        judged = pool.map(judge, [(name, seed) for name in names for seed in range(given.seeds)], chunksize=25)
        for name in names:
            made = list(islice(judged, given.seeds))
            count = Counter(outcome for *_, outcome, _, _ in made)
            shares = {outcome: count[outcome] / given.seeds for outcome in ("pass", "warn", "fail")}
            case = CASES[name]
            ok = holds(case.kind, shares)
            kept &= ok
            loose = sum(one[3] for one in made)
            found[name] = {"kind": case.kind, "what": case.what, **shares, "loose_passes": loose, "machine": machine}
            against = {"exact, pass": ("warn", "fail"), "exact, no fail": ("fail",), "wrong": ("pass",)}
            against = (against | {"condemned": ("pass", "warn")})[case.kind]
            line = f"{name}: pass {shares['pass']:.0%}, warn {shares['warn']:.0%}, fail {shares['fail']:.0%}"
            line += "" if ok else f"  DOES NOT HOLD ({case.kind})"
            odd = [f"\n    seed {seed}: {verdict[:200]}" for _, seed, outcome, _, verdict in made if outcome in against]
            print(line + "".join(odd[:2]), flush=True)
            record_cases(given, before, found)
    print(f"Written to {given.out}")
    print("All hold." if kept else "NOT ALL HOLD.")


if __name__ == "__main__":
    main()
