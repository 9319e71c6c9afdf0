"""What a certificate costs per scored draw, in units of one full gradient.

    python benchmarks/certificate.py                 # a minute
    python benchmarks/certificate.py --rows 1e7

Logistic regression, d = 10. The certificate's pass computes log π and its gradient at the scored draws, and log π at as
many proposals. The unit is one streamed pass over all rows that computes the gradient at a single θ, in blocks of the
fastest size: in float64, as full gradients in lwa are, and for comparison in float32, which the certificate chooses if
rounding does not matter. `lwa.certify` is timed as a whole, and its pass alone. Timings are interleaved medians without
compilation.
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

from lwa.data.data import lay_out
from lwa.diagnostics.certify import certify
from lwa.diagnostics.gradients import choose_score_precision, score_places
from lwa.diagnostics.transitions import draw_proposals
from lwa.models.likelihood import JaxLikelihood, Places, ScoreSums, add_block
from lwa.rivals.problems import simulate_logistic
from lwa.rows import as_rows
from lwa.rows.slots import fill_up
from lwa.targets.reference import find_reference
from lwa.user.progress import Display

HERE = Path(__file__).parent
PARAMETERS = 10
CHAINS, DRAWS = 4, 1000
BLOCKS = [4096, 16_384, 65_536]


def seconds(work):
    """Wall-clock time of a call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def one_gradient(model, rows, theta, block, precision):
    """A streamed pass at a single θ, with no proposal."""
    total = ScoreSums(jnp.zeros(1), jnp.zeros((1, len(theta))), jnp.zeros(0))
    points = theta[None].astype(precision)
    for batch in rows.blocks(block):
        places = Places(points, points[:0], points[:0])
        total = add_block(model, total, places, *fill_up(batch, block, precision))
    jax.block_until_ready(total)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "certificate.json")
    given = parser.parse_args()
    model, data, *_ = simulate_logistic(int(given.rows), seed=1, parameters=PARAMETERS)
    rows = as_rows(data)
    with jax.enable_x64(True), Display(False) as display:
        mode = find_reference(model, rows, np.zeros(PARAMETERS), 1)
        draws = mode.theta + np.random.default_rng(1).normal(size=(CHAINS, DRAWS, PARAMETERS)) @ mode.factor.T
        points = draws.reshape(-1, PARAMETERS)[: given.points]
        ends = mode.theta + draw_proposals(given.points, PARAMETERS) @ mode.factor.T
        places, layout = Places(points, points[:0], ends), lay_out(model, rows)

        def unit(precision):
            return min(seconds(lambda b=b: one_gradient(model, rows, mode.theta, b, precision)) for b in BLOCKS)

        def whole():
            return seconds(lambda: certify(model, rows, {"beta": draws}, points=given.points, progress=False))

        def streamed():
            return seconds(lambda: score_places(layout, places, mode.factor, display))

        rounds = range(given.repeats + 1)
        times = [(unit(np.float64), unit(np.float32), whole(), streamed()) for _ in rounds][1:]  # first: compile
        precision = np.dtype(choose_score_precision(model, rows, places, mode.factor)).name
    double, single, certify_seconds, pass_seconds = (statistics.median(column) for column in zip(*times, strict=True))
    found = {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {jax.local_devices()[0].platform}, JAX {jax.__version__}",
        "rows": int(given.rows),
        "parameters": PARAMETERS,
        "points": given.points,
        "precision": precision,
        "block": JaxLikelihood(model).choose_block(places),
        "one_gradient_seconds": round(double, 4),
        "one_gradient_float32_seconds": round(single, 4),
        "certify_seconds": round(certify_seconds, 3),
        "pass_seconds": round(pass_seconds, 3),
        "gradients_per_scored_draw": round(certify_seconds / given.points / double, 3),
        "float32_gradients_per_scored_draw": round(certify_seconds / given.points / single, 3),
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    print(f"Written to {given.out}")


if __name__ == "__main__":
    main()
