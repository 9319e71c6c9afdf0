"""What a transition over windows costs, what compiling it costs, and what s_N costs.

    python benchmarks/windows.py                     # half a minute on one core

One chain, one thread, N = 10⁶ in memory: microseconds per transition with the paper's S₀ and without a statistic. The
seconds of the first page are compilation; code that Numba keeps on disk makes them fewer from the second run on. Time
is the thread's own, because machines are shared.
"""

import time

import numpy as np

from lwa.rows.parts import Parts
from lwa.rows.units import number_windows
from lwa.subsets import Gaussian, Window
from lwa.subsets.windows.law import build_window_law, draw_window_page
from lwa.subsets.windows.walk import walk_page
from lwa.summaries import Autocorrelations, Combine, Quantiles

N, TRANSITIONS = 10**6, 100_000
S0 = Combine(Quantiles(0.2, 0.5, 0.8), Autocorrelations(5))


def timed(call):
    start = time.thread_time()
    value = call()
    return time.thread_time() - start, value


def main():
    rng = np.random.default_rng(1)
    column, ends = rng.normal(size=N), np.array([N])
    seconds, statistic = timed(lambda: S0.prepare(column, ends))
    print(f"s_N of S0, N = {N}: {seconds:.2f} s")
    compared = {"column": column, "statistic": statistic, "weight": Gaussian()}
    for name, n, options in (
        ("S0", 100, dict(compared, epsilon=0.3)),
        ("S0", 1000, dict(compared, epsilon=0.1)),
        ("no statistic", 1000, {}),
    ):
        windows = number_windows(Parts(np.array([0, N])), n)
        setup, law = timed(lambda windows=windows: build_window_law(windows.number, Window()))

        def page(size, windows=windows, law=law, options=options):
            return walk_page(N // 2, draw_window_page(rng, size, law), windows, law, **options)

        first, _ = timed(lambda page=page: page(1))
        runs = [timed(lambda page=page: page(TRANSITIONS)) for _ in range(5)]
        cost, rate = min(seconds for seconds, _ in runs) / TRANSITIONS * 1e6, runs[0][1].accepted.mean()
        print(f"{name}, n = {n}: {cost:.2f} µs per transition, {rate:.2f} accepted, first page {setup + first:.2f} s")


if __name__ == "__main__":
    main()
