"""Hash the draws of many runs, to see whether a change of the code changed one bit.

    python scripts/hash_runs.py --record            # writes scripts/hashes.json
    python scripts/hash_runs.py                     # runs everything again and compares; exit code 1 if a hash differs

Hashes cover every draw and every sample statistic. They depend on the versions of JAX and NumPy and on the type of
processor, so record and compare on one machine. The script runs on the code before and after the options of the
calibrated target moved into `lwa.targets`, and the kernels into `lwa.kernels`.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import lwa

HASHES = Path(__file__).with_name("hashes.json")
MOVED = "targets" in lwa.__all__
KERNELS = lwa.kernels if "kernels" in lwa.__all__ else lwa.parameters
COMMON = {"seed": 3, "progress": False, "draws": 60, "tune": 96, "chains": 4}


def options(**given):
    """Arguments of `lwa.sample`, the calibrated target's own in the place that this version has for them."""
    own = {name: given.pop(name) for name in ("transport", "leverage", "reference", "tolerance") if name in given}
    if not MOVED:
        return {**COMMON, **given, **own}
    if own:
        given["target"] = lwa.targets.Calibrated(**own)
    return {**COMMON, **given}


UNSTABLE = {"rival in Python": ["acceptance_rate"]}
"""Statistics whose last bits differ from run to run on any version: rivals add floats up block by block, and how long a
block is depends on the clock."""


def digest(fit, apart):
    """Of all draws and statistics, those apart that are not stable."""
    found = hashlib.sha256()
    for group in (fit.posterior, fit.sample_stats, fit.warmup or {}):
        for name in sorted(set(group) - set(apart)):
            found.update(name.encode() + np.ascontiguousarray(group[name]).tobytes())
    return found.hexdigest()[:20]


rng = np.random.default_rng(0)
N = 4000
Y = rng.normal(3.0, 1.0, N)
X = rng.normal(size=(N, 3))
LABELS = rng.random(N) < 1 / (1 + np.exp(-X @ [0.5, -1.0, 0.2]))
WIDE = rng.normal(size=(N, 14))
WIDE[:, 0] = rng.random(N) < 0.01
GROUPS = np.repeat(np.arange(N // 8), 8)
NOISE = rng.normal(size=N + 1)
SERIES = np.zeros(N)
for t in range(1, N):
    SERIES[t] = 0.5 * SERIES[t - 1] + NOISE[t] + 0.3 * NOISE[t - 1]
TABLE = {"y": LABELS.astype(float), "a": X[:, 0], "b": X[:, 1], "level": np.array(["u", "v", "w"])[GROUPS % 3]}

NORMAL = lwa.Model(lambda mu, y: -0.5 * (y - mu) ** 2, lambda mu: -0.5 * (mu / 10) ** 2, init=0.0)
SCALED = lwa.Model(
    lambda theta, y: -0.5 * ((y - theta["mu"]) / theta["sigma"]) ** 2 - jnp.log(theta["sigma"]),
    lambda theta: -0.5 * theta["mu"] ** 2 / 100 - theta["sigma"],
    {"mu": 0.0, "sigma": 1.0},
    constraints={"sigma": "positive"},
)


def regression(d, **more):
    return lwa.Model(
        lambda theta, rows: -jax.nn.softplus((1 - 2 * rows["y"]) * (rows["x"] @ theta["beta"])),
        lambda theta: -0.5 * jnp.sum(theta["beta"] ** 2) / 25,
        {"beta": jnp.zeros(d)},
        **more,
    )


def in_python(mu, y):
    return -0.5 * (np.asarray(y) - float(mu)) ** 2


PYTHON = lwa.Model(in_python, lambda mu: -0.5 * float(mu) ** 2 / 100, init=0.0)
LOGISTIC = regression(3)
ROWS, WIDE_ROWS = {"x": X, "y": LABELS}, {"x": WIDE, "y": LABELS}


def in_groups(theta, rows):
    return -0.5 * (rows["y"] - theta["mu"]) ** 2 * jnp.exp(-theta["log_sd"]) - 0.5 * theta["log_sd"]


GROUPED = lwa.Model(
    in_groups,
    lambda theta: -0.5 * (theta["mu"] ** 2 + theta["log_sd"] ** 2) / 100,
    {"mu": 0.0, "log_sd": 0.0},
    groups="group",
)


def numpyro_model(x, y):
    beta = numpyro.sample("beta", dist.Normal(0, 2).expand([3]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ beta), obs=y)


NUMPYRO = {"x": X, "y": LABELS.astype(int)}


def sample(model, data, **given):
    return lwa.sample(model, data, **options(subset_size=100, **given))


def rival(name, model=LOGISTIC, data=ROWS, **given):
    return lwa.rivals.sample(name, model, data, **{**COMMON, **given})


def resumed(model, data, **given):
    """Begun, stopped by a budget of rows, gone on with."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        lwa.sample(model, data, **options(subset_size=100, **given, checkpoint=run))
        return lwa.resume(run, model, data, draws=150, progress=False)


def on_device(model, data, **given):
    """As if there were an accelerator: its programs run on the CPU."""
    sample(model, data, **given)  # so that every module is there
    asking = [
        module for name, module in sys.modules.items() if name.startswith("lwa") and hasattr(module, "accelerated")
    ]
    usual = asking[0].accelerated
    try:
        for module in asking:
            module.accelerated = lambda: True
        return sample(model, data, **given)
    finally:
        for module in asking:
            module.accelerated = usual


def polished():
    return sample(LOGISTIC, ROWS).polish(3, progress=False)


S = lwa.summaries
RUNS = {
    "subposterior": lambda: sample(LOGISTIC, ROWS, target="subposterior"),
    "subposterior, L = 3, laplace": lambda: sample(
        LOGISTIC, ROWS, target="subposterior", refresh_steps=3, subset_weight="laplace", keep_tune=True
    ),
    "powered": lambda: sample(LOGISTIC, ROWS, target="powered"),
    "powered, free, per-row summary": lambda: sample(
        NORMAL, Y, target="powered", subset_move=lwa.subsets.Free(), summary=S.PerRow(lambda y: y**2)
    ),
    "powered, epsilon, epanechnikov": lambda: sample(
        NORMAL, Y, target="powered", epsilon=0.1, subset_weight="epanechnikov", subset_move=lwa.subsets.Swap(3)
    ),
    "calibrated": lambda: sample(LOGISTIC, ROWS),
    "calibrated, float64, one chain": lambda: sample(LOGISTIC, ROWS, precision="float64", chains=1),
    "calibrated, 5 chains, thinned": lambda: sample(LOGISTIC, ROWS, chains=5, thinning=3),
    "calibrated, 70 chains, summary": lambda: sample(NORMAL, Y, chains=70, keep="summary", draws=30),
    "calibrated, auto size": lambda: lwa.sample(LOGISTIC, ROWS, **options(subset_size="auto", tolerance=0.05)),
    "calibrated, untransported": lambda: sample(LOGISTIC, ROWS, transport=False),
    "calibrated, curvature": lambda: sample(LOGISTIC, ROWS, summary=S.Curvature(), transport=False),
    "calibrated, given reference": lambda: sample(LOGISTIC, ROWS, reference={"beta": np.array([0.5, -1.0, 0.2])}),
    "calibrated, fixed": lambda: sample(LOGISTIC, ROWS, subset_move=lwa.subsets.Fixed()),
    "calibrated, constrained": lambda: sample(SCALED, Y),
    "auto": lambda: sample(LOGISTIC, ROWS, target="auto"),
    "auto, falls back": lambda: sample(
        lwa.Model(lambda mu, y: -jnp.abs(y - mu), lambda mu: -0.5 * mu**2 / 100, 0.0), Y, target="auto"
    ),
    "leverage": lambda: sample(LOGISTIC, ROWS, leverage=True),
    "leverage, second order, 14 parameters": lambda: sample(regression(14), WIDE_ROWS, leverage=True),
    "second order": lambda: sample(LOGISTIC, ROWS, transport="second_order"),
    "exact": lambda: sample(LOGISTIC, ROWS, exact=True, draws=12, thinning=4),
    "exact, powered": lambda: sample(NORMAL, Y, target="powered", exact=True, draws=12, thinning=4),
    "random walk": lambda: sample(LOGISTIC, ROWS, kernel=KERNELS.RandomWalk()),
    "blockwise": lambda: sample(SCALED, Y, kernel=KERNELS.Blockwise([["mu"], ["sigma"]])),
    "independence": lambda: sample(LOGISTIC, ROWS, kernel=KERNELS.Independence(df=8)),
    "MALA": lambda: sample(LOGISTIC, ROWS, kernel=KERNELS.MALA()),
    "HMC": lambda: sample(LOGISTIC, ROWS, kernel=KERNELS.HMC(steps=4)),
    "NUTS": lambda: sample(LOGISTIC, ROWS, kernel=KERNELS.NUTS()),
    "windows": lambda: sample(lwa.arma(1, 1), SERIES),
    "windows, subposterior, quantiles": lambda: sample(
        lwa.arma(1, 1), SERIES, target="subposterior", summary=S.Combine(S.Quantiles(0.2, 0.5), S.Autocorrelations(2))
    ),
    "groups": lambda: sample(GROUPED, {"y": Y, "group": GROUPS}),
    "groups, powered": lambda: sample(GROUPED, {"y": Y, "group": GROUPS}, target="powered"),
    "in Python": lambda: sample(PYTHON, Y, draws=20, tune=40),
    "in Python, powered, given starts": lambda: sample(PYTHON, Y, target="powered", initvals=3.0, draws=20, tune=40),
    "glm": lambda: sample(lwa.glm("y ~ a + b + level", family="bernoulli"), TABLE),
    "glm, poisson": lambda: sample(
        lwa.glm("n ~ a + b", family="poisson"), {"n": np.floor(np.exp(X[:, 0] / 2) + 1), "a": X[:, 0], "b": X[:, 1]}
    ),
    "numpyro": lambda: sample(lwa.from_numpyro(numpyro_model, NUMPYRO), NUMPYRO),
    "two processes": lambda: sample(LOGISTIC, ROWS, executor=lwa.executors.Processes(2)),
    "resumed": lambda: resumed(NORMAL, Y),
    "resumed, windows": lambda: resumed(lwa.arma(1, 1), SERIES),
    "resumed, exact": lambda: resumed(NORMAL, Y, exact=True, draws=12, thinning=4),
    "row budget": lambda: sample(NORMAL, Y, budget=lwa.RowReads(10**5), draws=10**4),
    "polished": polished,
    "device": lambda: on_device(LOGISTIC, ROWS),
    "device, windows": lambda: on_device(lwa.arma(1, 1), SERIES),
    "rival metropolis": lambda: rival("metropolis"),
    "rival confidence": lambda: rival("confidence"),
    "rival austerity": lambda: rival("austerity", keep_tune=True),
    "rival firefly": lambda: rival("firefly", bound=lwa.rivals.JaakkolaJordan()),
    "rival delayed acceptance": lambda: rival("delayed_acceptance"),
    "rival pseudo-marginal": lambda: rival("pseudo_marginal"),
    "rival noisy": lambda: rival("noisy"),
    "rival sgld": lambda: rival("sgld"),
    "rival in Python": lambda: rival("metropolis", PYTHON, Y[:200], draws=20, tune=20),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the hashes instead of comparing them")
    parser.add_argument("--only", nargs="*", default=[], help="runs whose name contains one of these words")
    parser.add_argument("--hashes", type=Path, default=HASHES, help="where they are kept")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    known = {} if given.record else json.loads(given.hashes.read_text())
    found, differ = {}, []
    for name, run in RUNS.items():
        if given.only and not any(word in name for word in given.only):
            continue
        began = time.monotonic()
        try:
            found[name] = digest(run(), UNSTABLE.get(name, []))
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
        same = given.record or found[name] == known.get(name)
        differ += [] if same else [name]
        print(f"{'' if same else 'DIFFERS '}{name}: {found[name]} ({time.monotonic() - began:.1f} s)", flush=True)
    if given.record:
        given.hashes.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found)} runs, {len(differ)} of them differ{': ' if differ else ''}{'; '.join(differ)}")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
