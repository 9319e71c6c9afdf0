"""What a certificate costs: its pass over all rows, per scored draw, in units of one full gradient.

    python benchmarks/certificate.py                 # a minute
    python benchmarks/certificate.py --rows 1e7

Logistic regression, d = 10. The unit is one streamed pass over all rows that takes the gradient at a single θ, in
blocks of the size at which that is fastest: in float64, as full gradients in lwa are, and for comparison in float32,
which the certificate chooses where its rounding is not felt. Timings are interleaved, medians, without compilation.
"""

import argparse
import json
import platform
import statistics
import time
from datetime import date
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from lwa.demo import logistic
from lwa.diagnostics.gradients import EVALUATIONS, Sums, add_block, choose_precision, filled, score
from lwa.progress import Display
from lwa.reference import find_reference
from lwa.rows import as_rows

HERE = Path(__file__).parent
PARAMETERS = 10
BLOCKS = [4096, 16_384, 65_536]


def seconds(work):
    """Wall-clock time of a call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def one_gradient(model, rows, theta, block, precision):
    """A streamed pass at a single θ."""
    total = Sums(jnp.zeros(1), jnp.zeros((1, len(theta))))
    for batch in rows.blocks(block):
        total = add_block(model, total, theta[None].astype(precision), *filled(batch, block, precision))
    jax.block_until_ready(total)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "certificate.json")
    given = parser.parse_args()
    model, data, _ = logistic(int(given.rows), PARAMETERS, seed=1)
    rows = as_rows(data)
    with jax.enable_x64(True), Display(False) as display:
        mode = find_reference(model, rows, np.zeros(PARAMETERS), 1)
        points = mode.theta + np.random.default_rng(1).normal(size=(given.points, PARAMETERS)) @ mode.factor.T

        def unit(precision):
            return min(seconds(lambda b=b: one_gradient(model, rows, mode.theta, b, precision)) for b in BLOCKS)

        def ours():
            return seconds(lambda: score(model, rows, points, mode.factor, display))

        times = [(unit(np.float64), unit(np.float32), ours()) for _ in range(given.repeats + 1)][1:]  # first: compile
        precision = np.dtype(choose_precision(model, rows, points, mode.factor)).name
    double, single, pass_seconds = (statistics.median(column) for column in zip(*times, strict=True))
    found = {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {jax.local_devices()[0].platform}, JAX {jax.__version__}",
        "rows": int(given.rows),
        "parameters": PARAMETERS,
        "points": given.points,
        "precision": precision,
        "block": max(1, EVALUATIONS // given.points),
        "one_gradient_seconds": round(double, 4),
        "one_gradient_float32_seconds": round(single, 4),
        "pass_seconds": round(pass_seconds, 3),
        "gradients_per_scored_draw": round(pass_seconds / given.points / double, 3),
        "float32_gradients_per_scored_draw": round(pass_seconds / given.points / single, 3),
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    print(f"Written to {given.out}")


if __name__ == "__main__":
    main()
