"""What a fit holds in memory does not grow with the rows that it reads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lwa.rows import write_store

FIT = """
import json, sys
import jax, jax.numpy as jnp
import lwa
from lwa.backend.machine import PeakMemory
from lwa.rows import open_store

def log_likelihood(beta, rows):
    return -jax.nn.softplus((1.0 - 2.0 * rows["y"]) * sum(beta[i] * rows[f"x{i}"] for i in range(10)))

model = lwa.Model(log_likelihood, lambda beta: -0.5 * jnp.sum(beta**2) / 25.0, init=jnp.zeros(10))
with PeakMemory() as peak:
    fit = lwa.sample(model, open_store(sys.argv[1]), subset_size=100, draws=2000, thinning=1, seed=1, progress=False)
    fit.certify(points=80, progress=False)
print(json.dumps([peak.bytes, fit.attributes["rows"]]))
"""


def batches(rows):
    rng = np.random.default_rng(0)
    for _ in range(rows // 10**6):
        x = rng.standard_normal((10, 10**6), dtype=np.float32)
        y = (rng.random(10**6) < 1 / (1 + np.exp(-0.5 * x[1]))).astype(np.float32)
        yield {f"x{i}": column for i, column in enumerate(x)} | {"y": y}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not say what a process holds")
def test_anonymous_memory_does_not_grow_with_rows(tmp_path):
    """From 2 to 12 million rows, 440 MB more, by less than one number of eight bytes a row.

    What may grow with N stops to before that: the subset that the mode is first sought on, at 200,000 rows, and the
    indices it is drawn from, at 50 times as many (10⁷), of 8 bytes each: 16 MB for the smaller table, none for the
    larger. The rest of the difference is what allocators keep, some 30 MB either way.
    """
    environment = os.environ | {"MALLOC_ARENA_MAX": "2"}
    peaks = []
    for rows in (2 * 10**6, 12 * 10**6):
        folder = tmp_path / f"{rows}"
        write_store(batches(rows), folder)
        done = subprocess.run(
            [sys.executable, "-c", FIT, str(folder)], stdout=subprocess.PIPE, text=True, check=True, env=environment
        )
        peak, seen = json.loads(done.stdout)
        assert seen == rows
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 8 * 10**7
