"""Compare the speed of two source trees of lwa, in one run: what a move costs, and `import lwa`.

    git worktree add /somewhere/old COMMIT
    python scripts/compare_speed.py /somewhere/old/src src  # about four minutes; exit code 1 if a ratio exceeds 1.05

Runs of both trees alternate, each in a fresh process, since machines are noisy; ratios are of the fastest runs. A move
is that of `benchmarks/step_cost.py`: logistic regression, N = 10⁶, d = 10, 8 chains, microseconds per move and chain at
the margin (a long run minus a short one), by the paper's target and by the default, which is timed as a whole too.
"""

import argparse
import json
import os
import subprocess
import sys

MOST = 1.05
PROGRAM = """
import json, sys, time
began = time.perf_counter()
import lwa
imported = time.perf_counter() - began
import jax, jax.numpy as jnp, numpy as np
rng = np.random.default_rng(1)
x = rng.standard_normal((1_000_000, 10), dtype=np.float32)
y = rng.random(1_000_000) < 1 / (1 + np.exp(-x @ rng.normal(scale=0.5, size=10)))
model = lwa.Model(
    lambda theta, rows: -jax.nn.softplus((1 - 2 * rows["y"]) * (rows["x"] @ theta["beta"])),
    lambda theta: -0.5 * jnp.sum(theta["beta"] ** 2) / 25, {"beta": jnp.zeros(10)},
)
data = {"x": x, "y": y.astype(np.float32)}
def seconds(n, moves, **options):
    return lwa.sample(model, data, subset_size=n, draws=moves // 100, tune=1024, thinning=100, chains=8, seed=1,
                      precision="float32", progress=False, **options).attributes["sampling_seconds"]
def margin(n, moves, **options):
    seconds(n, 2000, **options)
    return (seconds(n, moves, **options) - seconds(n, moves // 5, **options)) / (0.8 * moves) / 8 * 1e6
found = {"import lwa": imported}
began = time.perf_counter()
lwa.sample(model, data, seed=1, progress=False)
found["default run, cold"] = time.perf_counter() - began
for n, moves in ((100, 60_000), (1000, 60_000)):
    found[f"subposterior, n = {n}"] = margin(n, moves, target="subposterior", epsilon=0.5 / n**0.5)
    found[f"calibrated, n = {n}"] = margin(n, moves)
print(json.dumps(found))
"""


def measure(tree: str) -> dict[str, float]:
    """One process of one tree."""
    environment = os.environ | {"PYTHONPATH": os.path.abspath(tree)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--repeats", type=int, default=4)
    given = parser.parse_args()
    runs = [(measure(given.old), measure(given.new)) for _ in range(given.repeats)]
    slower = []
    for name in runs[0][0]:
        old, new = (min(run[side][name] for run in runs) for side in (0, 1))
        slower += [name] if new > MOST * old else []
        print(f"{name:24} {old:8.3f} -> {new:8.3f}   ratio {new / old:.2f}")
    print(f"slower by more than {MOST - 1:.0%}: {', '.join(slower) or 'nothing'}")
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
