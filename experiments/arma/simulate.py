"""The paper's series, Y_k = α Y_{k-1} + β Z_{k-1} + γ + Z_k, a million steps at a time."""

from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from experiments.arma.model import TRUTH
from experiments.exhibit import CHUNK, cached


def series(rows: int, seed: int) -> Path:
    """Y_0, …, Y_{rows-1} in a file, simulated where it is not there yet."""
    state = None

    def fill(first: int, into: np.ndarray) -> None:
        nonlocal state
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(first // CHUNK,)))
        if state is None:
            state = rng.normal(), rng.normal()  # Y_0 ~ μ = N(0, 1), Z_0 ~ N(0, 1)
            into[0] = state[0]
            into = into[1:]
        into[:], state = steps(rng.normal(size=len(into)), *state)

    return cached(f"arma_{rows}_{seed}", (rows,), np.float32, fill)


def steps(noise: np.ndarray, y: float, z: float) -> tuple[np.ndarray, tuple[float, float]]:
    """The steps that this noise makes after (Y, Z) = (y, z), and the last (Y, Z)."""
    alpha, beta, gamma = TRUTH
    pushed = noise + beta * np.concatenate([[z], noise[:-1]]) + gamma
    made, _ = lfilter([1.0], [1.0, -alpha], pushed, zi=[alpha * y])
    return made, (float(made[-1]), float(noise[-1]))
