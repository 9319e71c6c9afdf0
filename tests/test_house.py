"""The house stays as it is: counts that `scripts/house.py` makes, and the walk of `scripts/walk.py`."""

import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "scripts"


def run(script):
    return subprocess.run([sys.executable, SCRIPTS / script], capture_output=True, text=True, timeout=300, check=False)


def test_counts_stay_within_their_limits():
    done = run("house.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_first_move_is_reached_through_few_modules_and_every_stage_once():
    done = run("walk.py")
    assert done.returncode == 0, done.stdout + done.stderr
