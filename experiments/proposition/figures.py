"""KL(π‖π_U) and its bounds, against the mismatch and against the size of U."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.exhibit import COLOURS, tidy
from experiments.proposition.quadrature import Array


class Curves(NamedTuple):
    """One model's divergence and bounds at each r(U), or at each n; nan where there is none."""

    name: str
    at: Array
    more: Array
    """KL where ξ_U > 0."""
    fewer: Array
    """KL where ξ_U < 0."""
    finite: Array
    paper: Array
    infinite_from: float | None = None
    """r(U) from which on the finite bound is infinite."""


def bounds(by_mismatch: Sequence[Curves], by_size: Sequence[Curves], n: int, Theta: tuple[float, float]) -> Figure:
    """Two models side by side: against r(U) at one n on top, against n at r(U) = 0 below."""
    figure = Figure(figsize=(10, 8.4), layout="constrained")
    top, bottom = figure.subplots(2, 2, sharey="row")
    papers = f"the paper's bound, Θ = [{Theta[0]:g}, {Theta[1]:g}]"
    for axes, curves in zip(top, by_mismatch, strict=True):
        lines(axes, curves, ("KL, ξ > 0", "KL, ξ < 0"), papers)
        if curves.infinite_from is not None:
            axes.axvline(curves.infinite_from, color=COLOURS["grey"], ls=":", lw=1)
            axes.annotate(
                "finite bound\ninfinite from here",
                (curves.infinite_from, 1e3), xytext=(4, 0), textcoords="offset points", fontsize=8, color="0.35",
            )  # fmt: skip
        axes.set(xlabel="r(U) = |ξ|, in units of y", title=f"{curves.name}, n = {n}")
    for axes, curves in zip(bottom, by_size, strict=True):
        lines(axes, curves, ("KL, ξ = 0", None), papers)
        axes.set(xscale="log", xlabel="n, rows of U", title=f"{curves.name}, optimal subsets: r(U) = 0")
    for axes in (top[0], bottom[0]):
        axes.set_ylabel("KL(π‖π_U) and its bounds, in nats")
    top[1].legend(frameon=False, fontsize=9, loc="center right", bbox_to_anchor=(1, 0.55))
    bottom[1].legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(0, 0.7))
    figure.suptitle("Both bounds hold; the finite one is far nearer to KL(π‖π_U) than the paper's")
    tidy(*top, *bottom)
    return figure


def lines(axes: Axes, curves: Curves, told: tuple[str, str | None], papers: str) -> None:
    """KL for both signs, and two bounds."""
    axes.plot(curves.at, curves.more, color=COLOURS["truth"], label=told[0])
    if told[1] is not None:
        axes.plot(curves.at, curves.fewer, "--", color=COLOURS["truth"], label=told[1])
    axes.plot(curves.at, np.where(np.isinf(curves.finite), np.nan, curves.finite), color=COLOURS["lwa"])
    axes.lines[-1].set_label("the finite bound, Θ = ℝ")
    axes.plot(curves.at, curves.paper, color=COLOURS["full"], label=papers)
    axes.set_yscale("log")
