"""The measurements behind six decisions of docs/design; about three minutes on two cores.

    python benchmarks/choices.py

1. How rows lie on the device: a move of θ with one refresh, logistic, d = 10, 8 chains, n = 1000, with slots last, rows
   first, or all columns in one matrix (row-layout.md).
2. The cost of a transition of the subset chain by itself (subset-chain.md).
3. The cost of float64 at n = 100, and the precision that "auto" chooses there for the powered target (precision.md).
4. The calibrated target at n = 100 with subsets chosen by their curvature, transported, both, and with the subset
   proposed at every or every fourth transition: the cost of a move, effective draws per move (median over parameters of
   θ and θ², from the variance of means over 32 chains), and the range of sd ratios to the Gaussian at the mode
   (transport-or-second-order.md).
5. The default at n = 100, 32 chains, with the steps of a move as XLA schedules them by itself, and one after the other
   (row-layout.md).
6. Inverse Cholesky factors of 4096 matrices of 10 by 10: by LAPACK one by one, and all columns together, 64 at a time
   (transport-factors.md).
"""

import json
import statistics
import time
from datetime import date
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import lwa
from lwa.algorithm import play, write
from lwa.backend.random import Purpose
from lwa.backend.xla import find_cpu_options
from lwa.engine import problem as problems
from lwa.engine.problem import PilotSubsets, choose_precision
from lwa.rivals.problems import simulate_logistic
from lwa.rows import as_rows
from lwa.rows.passes import visit_rows
from lwa.subsets import Gaussian, Swap
from lwa.subsets.chain import SubsetChain
from lwa.summaries import Curvature, as_summary
from lwa.targets.calibration import SIDE_BY_SIDE, invert_factors_in_batch
from lwa.targets.reference import find_reference
from lwa.targets.target import Target

C, D, MOVES = 8, 10, 1000


def median_us(run, per, repeats=7):
    """Median microseconds of `run()`, divided by `per`."""
    jax.block_until_ready(run())
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run())
        took.append(time.perf_counter() - start)
    return round(statistics.median(took) / per * 1e6, 2)


def log_likelihood(theta, x, sign):
    return -jax.nn.softplus(-sign * (x @ theta))


LAYOUTS = {
    "slots last": (
        lambda x, s: (x.swapaxes(1, 2), s),
        lambda b: (b[0].swapaxes(1, 2), b[1]),
        lambda b, c, i, r: (b[0].at[c, :, i].set(r[:, :-1]), b[1].at[c, i].set(r[:, -1])),
    ),
    "rows first": (
        lambda x, s: (x, s),
        lambda b: b,
        lambda b, c, i, r: (b[0].at[c, i].set(r[:, :-1]), b[1].at[c, i].set(r[:, -1])),
    ),
    "one matrix": (
        lambda x, s: jnp.concatenate([x, s[..., None]], -1),
        lambda b: (b[..., :-1], b[..., -1]),
        lambda b, c, i, r: b.at[c, i].set(r),
    ),
}


def layout_us(name, n):
    """A move: one row of each chain replaced, its term evaluated, n terms at the proposal, accept or leave."""
    pack, unpack, put = LAYOUTS[name]
    rng, chains = np.random.default_rng(0), jnp.arange(C)
    each = jax.vmap(log_likelihood)
    x = jnp.asarray(rng.normal(size=(C, n, D)), jnp.float32)
    rows = pack(x, jnp.sign(x[..., 0]))
    tape = (
        jnp.asarray(rng.integers(0, n, (MOVES, C))),
        jnp.asarray(rng.normal(size=(MOVES, C, D + 1)), jnp.float32),
        jnp.asarray(0.05 * rng.normal(size=(MOVES, C, D)), jnp.float32),
        jnp.asarray(np.log(rng.random((MOVES, C)))),
    )

    def move(carry, entry):
        (rows, terms, theta), (slot, row, push, log_u) = carry, entry
        rows = put(rows, chains, slot, row)
        terms = terms.at[chains, slot].set(each(theta, row[:, None, :-1], row[:, None, -1])[:, 0])
        new = each(theta + push, *unpack(rows))
        accept = log_u < 10.0 * (new - terms).astype(jnp.float64).sum(-1)
        theta = jnp.where(accept[:, None], theta + push, theta)
        return (rows, jnp.where(accept[:, None], new, terms), theta), theta

    theta = jnp.zeros((C, D), jnp.float32)
    block = jax.jit(lambda state: jax.lax.scan(move, state, tape))
    return median_us(lambda: block((rows, each(theta, *unpack(rows)), theta)), MOVES * C)


def subset_us(data, n):
    """A transition of U, candidates given."""
    rows = as_rows(data)
    gathering = visit_rows(rows, as_summary("auto", weighted=True).gather)[1]
    chain = SubsetChain(rows, gathering.finish(), Swap(1), Gaussian(), 0.3 / n**0.5, n, 1, MOVES)
    candidates, _ = chain.candidates(range(C), 0, Purpose.SUBSET)
    state = [chain.start(range(C))]

    def run():
        state[0], *_ = write(state[0], candidates, chain.weight, jnp.asarray(chain.epsilon), exchange=True)
        return state[0]

    return median_us(run, MOVES * C)


def precision_us(model, data, precision):
    """A step of `lwa.sample` at n = 100, long run minus short run."""

    def seconds(draws):
        fit = lwa.sample(
            model, data, subset_size=100, target="subposterior", epsilon=0.05, draws=draws, thinning=100, tune=1024,
            chains=C, seed=1, precision=precision, progress=False,
        )  # fmt: skip
        return fit.attributes["sampling_seconds"]

    seconds(20)
    found = [(seconds(500) - seconds(100)) / 40_000 / C * 1e6 for _ in range(3)]
    return round(statistics.median(found), 2)


VARIANTS = {
    "informed": {"summary": Curvature(), "target": lwa.targets.Calibrated(transport=False)},
    "informed, transported": {"summary": Curvature(), "subset_move": Swap(1)},
    "transported": {"subset_move": Swap(1)},
    "transported, every fourth": {},
}


def variant(model, data, mode, options):
    """A way to calibrate, long run minus short run."""

    def run(draws):
        fixed = {"subset_size": 100, "thinning": 1, "tune": 256, "chains": 32, "seed": 1, "progress": False}
        return lwa.sample(model, data, draws=draws, **fixed, **options)

    run(100)
    short, long = run(2000), run(20_000)
    seconds = long.attributes["sampling_seconds"] - short.attributes["sampling_seconds"]
    z = (long.posterior["beta"] - mode.theta) / np.sqrt(np.diag(np.linalg.inv(mode.precision)))
    worth = [v / f.mean(1).var(0, ddof=1) / z.shape[1] for f, v in ((z, 1.0), (z**2, 2.0))]
    ratio = z.std((0, 1))
    return {
        "move_us": round(seconds / 18_000 / 32 * 1e6, 2),
        "effective_draws_a_move": [round(float(np.median(each)), 2) for each in worth],
        "sd_ratio": [round(float(ratio.min()), 3), round(float(ratio.max()), 3)],
    }


def schedule_us(model, data, options):
    """A move at n = 100, long run minus short run, with θ's program compiled by these options."""
    usual, problems.play = problems.play, jax.jit(
        play.__wrapped__, static_argnames=("kernel",), donate_argnames=("state", "draws"), compiler_options=options
    )  # fmt: skip

    def seconds(draws):
        fixed = {"subset_size": 100, "thinning": 1, "tune": 256, "chains": 32, "seed": 1, "progress": False}
        return lwa.sample(model, data, draws=draws, **fixed).attributes["sampling_seconds"]

    try:
        seconds(100)
        return round(statistics.median((seconds(20_000) - seconds(2000)) / 18_000 / 32 * 1e6 for _ in range(3)), 2)
    finally:
        problems.play = usual


def factors_us(d=10, count=4096):
    """A matrix's inverse factor, by both ways."""
    x = np.random.default_rng(1).normal(size=(count, 100, d))
    bend = jnp.asarray(np.einsum("mij,mik->mjk", x, x))

    @jax.jit
    def one_by_one(bend):
        own = jnp.linalg.cholesky(bend)
        return jax.scipy.linalg.solve_triangular(own, jnp.broadcast_to(jnp.eye(d), own.shape), lower=True)

    @jax.jit
    def together(bend):
        return jax.lax.map(invert_factors_in_batch, bend.reshape(-1, SIDE_BY_SIDE, d, d))

    ways = {"lapack": one_by_one, "together": together}
    return {name: median_us(lambda way=way: way(bend), count, repeats=21) for name, way in ways.items()}


def main():
    model, data, _, truth = simulate_logistic(1_000_000, seed=1, parameters=D)
    with jax.enable_x64(True):
        mode = find_reference(model, as_rows(data), np.zeros(D), 1)
        layouts = {name: layout_us(name, 1000) for name in LAYOUTS}
        subsets = {n: subset_us(data, n) for n in (100, 1000)}
        factors = factors_us()
        batch = jax.tree.map(lambda leaf: leaf[:400].reshape(4, 100, *leaf.shape[1:]), data)
        pilot = PilotSubsets(batch, None, None)
        chosen = {
            f"{N:.0e}": choose_precision("auto", Target(model, N / 100), pilot, 1, truth).__name__
            for N in (1e5, 1e6, 1e7, 1e8)
        }
    found = {
        "date": date.today().isoformat(),
        "layouts_us_n1000": layouts,
        "subset_transition_us": subsets,
        "step_us_n100": {name: precision_us(model, data, name) for name in ("float32", "float64")},
        "powered_precision_n100": chosen,
        "calibrated_n100": {name: variant(model, data, mode, options) for name, options in VARIANTS.items()},
        "schedules_n100": {
            name: schedule_us(model, data, options)
            for name, options in (("xla's own", None), ("one after the other", find_cpu_options()))
        },
        "factor_us_d10": factors,
    }
    print(json.dumps(found, indent=1))
    out = Path(__file__).parent / "results" / "choices.json"
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
