"""Kill a run again and again, at random moments, and see whether its draws are those of a run that was left alone.

python scripts/soak.py --kills 100

The run is in a process of its own, keeps a state every fifth of a second, so that kills fall inside writes too, and is
taken up after each SIGKILL. Ends with 0 where the hashes of all draws agree, else with 1.
"""

import argparse
import hashlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHAINS, TUNE = 8, 2000


def problem():
    """A logistic regression, large enough to be fitted for a while."""
    from lwa.demo import logistic

    model, data, _ = logistic(50_000, 5, seed=1)
    return model, data


def digest(fit) -> str:
    """Of all draws and statistics."""
    found = hashlib.sha256()
    for group in (fit.posterior, fit.sample_stats):
        for name in sorted(group):
            found.update(name.encode() + group[name].tobytes())
    return found.hexdigest()


def child(folder: Path, draws: int) -> None:
    """Begin the run, or go on with it."""
    import lwa
    from lwa.checkpoints import keeping

    keeping.EVERY, keeping.SHARE = 0.2, 1.0
    model, data = problem()
    if any(folder.glob("state-*.lwa")):
        fit = lwa.resume(folder, model, data, progress=False)
    else:
        fit = lwa.sample(
            model, data, subset_size=100, draws=draws, tune=TUNE, thinning=20, chains=CHAINS, seed=1,
            checkpoint=folder, progress=False,
        )  # fmt: skip
    print(digest(fit))


def alone(draws: int) -> str:
    """The same run without a folder, and without any kill."""
    import lwa

    model, data = problem()
    fit = lwa.sample(
        model, data, subset_size=100, draws=draws, tune=TUNE, thinning=20, chains=CHAINS, seed=1, progress=False
    )
    return digest(fit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=12.0, help="that a process lives at the most")
    parser.add_argument("--draws", type=int, help="a chain; default: 4,000 for each kill")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    draws = given.draws or 4000 * given.kills
    if given.child is not None:
        child(given.child, draws)
        return
    moments, kills, began = random.Random(given.seed), 0, time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        while True:
            command = [sys.executable, __file__, "--child", str(folder), "--draws", str(draws)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            try:
                patience = moments.uniform(1.0, given.seconds) if kills < given.kills else None
                told, _ = process.communicate(timeout=patience)
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate()
                kills += 1
                states = [one.name for one in sorted(folder.glob("state-*.lwa"))]
                print(
                    f"kill {kills}, {time.monotonic() - began:.0f} s: {', '.join(states) or 'nothing yet'}", flush=True
                )
        found, whole = told.strip(), alone(draws)
        print(f"{kills} kills, {draws:,} draws of {CHAINS} chains: {found[:16]}, left alone {whole[:16]}")
        if kills < given.kills:
            print(f"The run was over after {kills} kills. Pass --draws {2 * draws} for more of them.")
        sys.exit(0 if process.returncode == 0 and found == whole and kills == given.kills else 1)


if __name__ == "__main__":
    main()
