"""Kill a run again and again, at random moments, and see whether its draws are those of a run that was left alone.

python scripts/soak.py --kills 100

The run is in a process of its own, keeps a state every fifth of a second, so that kills fall inside writes too, and is
taken up after each SIGKILL. Ends with 0 where the hashes of all draws agree, else with 1 and a sentence.
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

CHAINS, TUNE, ENDLESS = 8, 2000, 10**9
MORE = 1000
"""Draws that are made once nobody kills the run any more."""


def problem():
    """A logistic regression, large enough to be fitted for a while."""
    from lwa.rivals.problems import simulate_logistic

    model, data, *_ = simulate_logistic(50_000, seed=1, parameters=5)
    return model, data


def digest(fit) -> str:
    """Of all draws and statistics."""
    found = hashlib.sha256()
    for group in (fit.posterior, fit.sample_stats):
        for name in sorted(group):
            found.update(name.encode() + group[name].tobytes())
    return found.hexdigest()


def options() -> dict:
    """The same for both."""
    return {"subset_size": 100, "tune": TUNE, "thinning": 20, "chains": CHAINS, "seed": 1, "progress": False}


def child(folder: Path, more: int | None) -> None:
    """Begin a run that has no end, or go on with it; where `more` is given, by so many draws, and to its end."""
    import lwa
    from lwa.run.checkpoints import keeper as keeping

    keeping.STATE_SECONDS, keeping.STATE_SHARE = 0.2, 1.0
    model, data = problem()
    if not any(folder.glob("state-*.lwa")):
        lwa.sample(model, data, draws=ENDLESS if more is None else MORE, checkpoint=folder, **options())
    draws = None if more is None else lwa.load(folder).draws + more
    fit = lwa.resume(folder, model, data, draws=draws, progress=False)
    print(fit.draws, digest(fit))


def alone(draws: int) -> str:
    """The same run without a folder, and without any kill."""
    import lwa

    model, data = problem()
    return digest(lwa.sample(model, data, draws=draws, **options()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0, help="that a process lives at the most")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--more", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        child(given.child, given.more)
        return
    moments, began = random.Random(given.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        command = [sys.executable, __file__, "--child", str(folder)]
        for kill in range(given.kills):
            process = subprocess.Popen(command)
            time.sleep(moments.uniform(1.0, given.seconds))
            process.send_signal(signal.SIGKILL)
            if process.wait() != -signal.SIGKILL:
                sys.exit(f"The run ended by itself before kill {kill + 1}, with {process.returncode}.")
            there = ", ".join(sorted(file.name for file in folder.glob("state*")))
            print(f"kill {kill + 1}, {time.monotonic() - began:.0f} s: {there or 'nothing yet'}", flush=True)
        done = subprocess.run([*command, "--more", str(MORE)], stdout=subprocess.PIPE, text=True, check=True)
    draws, found = done.stdout.split()
    whole = alone(int(draws))
    took = f"{time.monotonic() - began:.0f} s in all"
    print(
        f"{given.kills} kills, {int(draws):,} draws of {CHAINS} chains: {found[:16]}, left alone {whole[:16]}, {took}"
    )
    sys.exit(0 if found == whole else 1)


if __name__ == "__main__":
    main()
