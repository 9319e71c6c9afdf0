"""Walk through `lwa.sample` up to the first move, and count the modules and functions that it enters.

    python scripts/walk.py            # counts and the list; exit code 1 if there are too many modules or a stage twice
    python scripts/walk.py --calls    # every function, in the order in which it is first entered

A module counts if one of its functions is called between `lwa.sample(...)` and the first move of θ, on any thread:
the tape that runs ahead and the compilation beside the run included. Threads race, so a module that only they enter may
count in one run and not in another; the limit holds with all of them. The model is the README's logistic regression.
The stages are the functions that `lwa.run.prepare` and `lwa.run.sample` call one after the other.
"""

import argparse
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import lwa
from lwa.engine import cohort  # imported, so that imports are no part of the walk
from lwa.run import sample as verbs

MOST_MODULES = 30
ROOT = Path(lwa.__file__).parent
STAGES = [
    ("run.settings", "Settings.check"),
    ("data.data", "lay_out"),
    ("run.prepare", "survey_rows"),
    ("run.prepare", "locate"),
    ("run.plan", "plan_subsets"),
    ("engine.problem", "build_problem"),
    ("run.begin", "begin_run"),
    ("run.loop", "carry_out"),
]


class Walk:
    """What is entered, until a cohort makes its first move."""

    def __init__(self) -> None:
        self.functions: dict[str, list[str]] = {}
        self.stages: list[tuple[str, str]] = []
        self.lock, self.over = threading.Lock(), False

    def __call__(self, frame, event, argument) -> None:
        """Note a call, as a profiler does."""
        if event != "call" or self.over or not frame.f_code.co_filename.startswith(str(ROOT)):
            return
        name = frame.f_code.co_qualname
        if name.startswith("<"):  # modules, lambdas, comprehensions
            return
        parts = Path(frame.f_code.co_filename).relative_to(ROOT).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "lwa"
        with self.lock:
            known = self.functions.setdefault(module, [])
            if name not in known:
                known.append(name)
            if (module, name) in STAGES:
                self.stages.append((module, name))
            self.over = (module, name) == ("engine.cohort", "LocalCohort.run")


def problem():
    """The README's model and data, smaller."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 3))
    y = rng.random(20_000) < 1 / (1 + np.exp(-x @ [0.5, -1.0, 0.2]))
    model = lwa.Model(
        log_likelihood=lambda theta, rows: -jax.nn.softplus((1 - 2 * rows["y"]) * (rows["x"] @ theta["beta"])),
        log_prior=lambda theta: -0.5 * jnp.sum(theta["beta"] ** 2) / 25,
        init={"beta": jnp.zeros(3)},
    )
    return model, {"x": x, "y": y}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", action="store_true", help="list the functions too")
    given = parser.parse_args()
    model, data = problem()
    assert cohort.LocalCohort
    sample, walk = verbs.sample, Walk()  # what `lwa.sample` is once its name is looked up
    threading.setprofile(walk)
    sys.setprofile(walk)
    sample(model, data, seed=1, draws=50, tune=64, progress=False)
    sys.setprofile(None)
    threading.setprofile(None)
    for module, functions in walk.functions.items():
        print(f"{module} ({len(functions)})" + (f": {', '.join(functions)}" if given.calls else ""))
    count = sum(map(len, walk.functions.values()))
    print(f"{len(walk.functions)} modules (at most {MOST_MODULES}), {count} functions before the first move")
    in_order = walk.stages == STAGES
    print(f"stages: {' -> '.join(name for _, name in walk.stages)}{'' if in_order else ', not once each and in order'}")
    sys.exit(0 if in_order and len(walk.functions) <= MOST_MODULES else 1)


if __name__ == "__main__":
    main()
