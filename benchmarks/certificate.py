"""What a certificate costs, with and without what the run knows of all rows, and what it would cost on all rows.

    python benchmarks/certificate.py                 # N = 10⁶ and 10⁸: some minutes, 5 GB of disk for a while
    python benchmarks/certificate.py --rows 1e5 1e6 1e7

The logistic regression of `out_of_core.py`, d = 10, in a row store whose pages the system holds. `lwa.sample` draws 4
chains of 1000 with default arguments; then, each in a process of its own,

- `fit.certify()`: the first call, which compiles, and the median of more;
- `lwa.certify(model, data, draws)`: nothing is known but the draws;
- the same gradients on all rows, up to 10⁷ rows.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from out_of_core import batches, model

HERE = Path(__file__).parent
CHAINS, DRAWS = 4, 1000
MOST_ON_ALL = 10**7
AIMS = {10**6: 0.6, 10**8: 30.0}
"""Seconds that `fit.certify()` may take on two cores."""


def seconds(work):
    """Return how long a call takes, and what it returns."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def repeat(work, times):
    """Return the seconds of the first call, the median of the others, and what the last returned."""
    made = [seconds(work) for _ in range(times + 1)]
    return made[0][0], statistics.median(took for took, _ in made[1:]), made[-1][1]


def one(folder, repeats):
    """Everything about one store; prints JSON."""
    import jax
    import numpy as np

    import lwa
    from lwa.diagnostics import certify
    from lwa.rows import open_store

    rows, logistic = open_store(folder), model()
    fit = lwa.sample(logistic, rows, draws=DRAWS, chains=CHAINS, seed=1, progress=False)
    draws = {"theta": np.asarray(fit.posterior["theta"])}
    first, known, certificate = repeat(lambda: fit.certify(progress=False), repeats)
    _, unknown, _ = repeat(lambda: lwa.certify(logistic, rows, draws, progress=False), repeats)
    found = {
        "rows": len(rows), "points": certificate.points, "read": certificate.read, "outcome": certificate.outcome,
        "first_seconds": round(first, 3), "known_seconds": round(known, 3), "unknown_seconds": round(unknown, 3),
        "jax": jax.__version__,
    }  # fmt: skip
    if len(rows) <= MOST_ON_ALL:
        certify.is_worthwhile = lambda layout: False
        _, found["all_rows_seconds"], on_all = repeat(lambda: fit.certify(progress=False), 1)
        found["outcome_on_all_rows"] = on_all.outcome
    print(json.dumps(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6, 1e8])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to put the rows for a while; the system's own if not given")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "certificate.json")
    given = parser.parse_args()
    if given.one:
        one(given.one, given.repeats)
        return
    from lwa.rows import write_store

    cells = []
    for rows in map(int, given.rows):
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            write_store(batches(rows), Path(folder) / "rows")
            command = [sys.executable, __file__, "--one", f"{folder}/rows", "--repeats", str(given.repeats)]
            made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        cells.append(json.loads(made.splitlines()[-1]))
        aim = AIMS.get(rows)
        judged = "" if aim is None else f"; under {aim:g} s: {'holds' if cells[-1]['known_seconds'] < aim else 'NO'}"
        print(f"{json.dumps(cells[-1])}{judged}", flush=True)
    machine = f"{os.cpu_count()} {platform.machine()} cores, JAX {cells[0]['jax']}"
    record = {"date": date.today().isoformat(), "machine": machine, "chains": CHAINS, "draws": DRAWS, "sizes": cells}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"Written to {given.out}")


if __name__ == "__main__":
    main()
