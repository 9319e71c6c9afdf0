"""The shipped images: digits 1 to 5 of MNIST, 2,000 of each, 15 x 15 pixels."""

from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "digits.npz"
DIGITS = (1, 2, 3, 4, 5)
PER_DIGIT = 2000
SIDE = 15
"""Pixels along an edge."""


def load_images(per_digit: int = PER_DIGIT) -> dict[str, np.ndarray]:
    """The first so many images of each digit, in MNIST's order: `image` (N, 225) and `digit` (N,), as bytes."""
    with np.load(FILE) as held:
        image, digit = held["image"], held["digit"]
    first = np.sort(np.concatenate([np.flatnonzero(digit == one)[:per_digit] for one in DIGITS]))
    return {"image": image[first], "digit": digit[first]}
