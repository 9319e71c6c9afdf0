"""Costs that can be counted: rows fetched, passes made, memory held."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import lwa
from lwa.rows import as_rows
from tests.tiny import MODEL


class Counting:
    """Rows that count what is asked of them."""

    def __init__(self, data):
        self.rows, self.taken, self.calls, self.passes = as_rows(data), 0, 0, 0

    def __len__(self):
        return len(self.rows)

    def take(self, indices):
        self.taken += len(indices)
        self.calls += 1
        return self.rows.take(indices)

    def blocks(self, size):
        self.passes += 1
        return self.rows.blocks(size)


def counted(N, draws):
    rows = Counting(np.random.default_rng(0).normal(size=N))
    fit = lwa.sample(
        MODEL, rows, subset_size=20, target="subposterior", epsilon=0.2, draws=draws, tune=500, thinning=10, chains=2,
        seed=1, progress=False,
    )  # fmt: skip
    return rows, fit


def test_rows_fetched_do_not_depend_on_their_number():
    """One pass, and then a row for each proposal of U, fetched a page at a time: the same at 10³ as at 10⁵ rows."""
    small, fit = counted(1000, 1000)
    large, _ = counted(100_000, 1000)
    assert small.passes == large.passes == 1
    page = fit.attributes["page_moves"]
    ahead = 2 * page  # a page for each chain may or may not have been begun when the run ended
    assert abs(small.taken - large.taken) <= ahead
    longer, more = counted(1000, 2000)
    moves = more.attributes["moves"] - fit.attributes["moves"]
    assert abs(longer.taken - small.taken - 2 * moves) <= 2 * ahead
    assert longer.calls - small.calls <= 2 * (moves // page + 2)


def test_rows_read_are_exactly_n_a_move():
    _, fit = counted(1000, 50)
    told = fit.attributes
    assert told["moves"] == 500 + 50 * 10
    assert told["rows_read"] == told["moves"] * 2 * 20
    assert (fit.sample_stats["n_rows_read"] == 10 * 20).all()


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="anonymous memory is read from /proc, which only Linux has"
)
def test_anonymous_memory_does_not_grow_with_the_rows(tmp_path):
    """10⁵ and 2·10⁷ memory-mapped rows of 4 columns: 320 MB more data, at most 64 MiB more memory held."""
    code = textwrap.dedent("""
        import sys, threading, time
        from pathlib import Path
        import jax.numpy as jnp
        import lwa

        peak = 0
        def watch():
            global peak
            while True:
                peak = max(peak, int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]))
                time.sleep(0.005)
        threading.Thread(target=watch, daemon=True).start()
        model = lwa.Model(lambda b, r: -0.5 * (r[:, 3] - r[:, :3] @ b) ** 2, lambda b: -0.5 * b @ b, jnp.zeros(3))
        lwa.sample(model, sys.argv[1], subset_size=100, target="subposterior", draws=200, thinning=50, seed=1,
                   progress=False)
        print(peak)
    """)
    peaks = []
    for N in (100_000, 20_000_000):
        path = tmp_path / f"{N}.npy"
        out = np.lib.format.open_memmap(path, "w+", np.float32, (N, 4))
        rng = np.random.default_rng(1)
        for start in range(0, N, 1_000_000):
            block = out[start : start + 1_000_000]
            block[:] = rng.standard_normal(block.shape, dtype=np.float32)
        out.flush()
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, env=dict(os.environ)
        )
        peaks.append(int(done.stdout) / 1024)
        path.unlink()
    assert peaks[1] - peaks[0] < 64, peaks
    assert peaks[1] < 1024
