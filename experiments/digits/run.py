"""Templates of handwritten digits: M-H on all images beside LWA-MCMC on a hundred, under the same budget.

python -m experiments.digits.run --scale paper
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import lwa
from experiments.digits.exact import block_variance, class_means, distance, posterior_mean, residual_sd, round_variance
from experiments.digits.figures import Curve, distance_figure, template_figure
from experiments.digits.images import DIGITS, load_images
from experiments.digits.model import Templates
from experiments.digits.paths import Path, on_all_rows, on_subsets
from experiments.exhibit import Out, command

SHARES = (0.05, 0.25, 0.5, 1.0)
"""Of the budget, at which templates are shown: the paper's 3, 15, 30 and 60 minutes."""
SPACES = ("pixels", "controls")


@dataclass(frozen=True)
class Size:
    """What differs between the scales."""

    per_digit: int  # images
    grid: int  # control points along an edge
    subset_size: int
    budget: Any  # of each method: seconds, or rows read, which are the same on every machine
    thinning: tuple[int, int]  # moves a kept state, of M-H and of LWA

    @property
    def timed(self) -> bool:
        """Whether the budget is one of seconds."""
        return not isinstance(self.budget, lwa.RowReads)


SIZES = {
    "paper": Size(per_digit=2000, grid=16, subset_size=100, budget=120.0, thinning=(10, 200)),
    "small": Size(per_digit=200, grid=8, subset_size=50, budget=lwa.RowReads(3_000_000), thinning=(5, 100)),
}


class Findings(NamedTuple):
    """What tests assert on; methods in the order M-H, LWA, spaces by name."""

    templates: Templates
    goal: np.ndarray  # the MAP, (5, grid, grid)
    limit: dict[str, float]  # where d of LWA's running mean goes, in closed form
    paths: tuple[Path, Path]
    at_shares: dict[str, np.ndarray]  # d at the SHARES of the budget, (method, share)
    same_moves: np.ndarray  # d of LWA in pixels after as many moves as M-H had made then
    arrival: dict[str, float]  # share of the budget after which LWA is as near as M-H is at its end; NaN if never
    variance_ratio: float  # of proposals, LWA's over M-H's
    swaps_accepted: float  # share of proposed subsets


def run(size: Size, seed: int, out: Out) -> Findings:
    """Both chains from a blank image, the figure's two halves, and what their proposals became."""
    with out.stage("images and the MAP"):
        images = load_images(size.per_digit)
        templates = Templates(size.grid, residual_sd(images))
        means = class_means(images)
        goal = posterior_mean(templates, means, size.per_digit)
        each = size.subset_size // len(DIGITS)
        towards = posterior_mean(templates, means, each)
    with out.stage("M-H on all images"):
        full = on_all_rows(templates, images, size.budget, size.thinning[0], seed)
    with out.stage("LWA-MCMC"):
        light = on_subsets(templates, images, size.subset_size, size.budget, size.thinning[1], seed)
    with out.stage("figures and tables"):
        paths = (full, light)
        d = [path.distances(templates, goal) for path in paths]
        spent = [path.seconds if size.timed else path.rows for path in paths]
        places = [places_of(one, budget_of(size)) for one in spent]
        at_shares = {
            space: np.array([one[space][place] for one, place in zip(d, places, strict=True)]) for space in SPACES
        }
        limit = {
            "pixels": float(distance(templates.phi(towards), templates.phi(goal))),
            "controls": float(distance(towards, goal)),
        }
        arrival = {space: first_below(d[1][space], spent[1], d[0][space][-1]) / budget_of(size) for space in SPACES}
        found = Findings(
            templates, goal, limit, paths, at_shares, at_moves(light, d[1]["pixels"], full.moves[places[0]]), arrival,
            light.proposal_variance / full.proposal_variance,
            float(light.fit.warmup_stats["subset_accepted"][0, len(light.squares) // 2 :].mean()),
        )  # fmt: skip
        draw(out, size, found, d, spent, places)
        write(out, size, found)
    return found


def budget_of(size: Size) -> float:
    """Seconds, or rows."""
    return float(size.budget) if size.timed else float(size.budget.count)


def places_of(spent: np.ndarray, budget: float) -> np.ndarray:
    """The last state within each share of the budget; the first where there is none yet."""
    return np.maximum(np.searchsorted(spent, np.array(SHARES) * budget, side="right") - 1, 0)


def at_moves(path: Path, d: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """d after so many moves, between the states kept before and after them."""
    return np.interp(moves, path.moves, d)


def first_below(d: np.ndarray, spent: np.ndarray, level: float) -> float:
    """What was spent when d was first at most `level`; NaN where it never is."""
    below = np.flatnonzero(d <= level)
    return float(spent[below[0]]) if len(below) else float("nan")


def label_of(share: float, size: Size) -> str:
    """Of a row of templates."""
    spent = share * budget_of(size)
    return f"{share:.0%}, {spent:.0f} s" if size.timed else f"{share:.0%}"


def draw(out: Out, size: Size, found: Findings, d: list[dict[str, np.ndarray]], spent, places) -> None:
    """Both halves of the paper's figure."""
    templates, paths = found.templates, found.paths
    names, labels = [path.name for path in paths], [label_of(share, size) for share in SHARES]
    pictures = np.stack([templates.phi(path.means[place]) for path, place in zip(paths, places, strict=True)])
    out.figure("templates", template_figure(names, labels, pictures, templates.phi(found.goal)))
    curves = [Curve(path.name, at, path.moves, one) for path, at, one in zip(paths, spent, d, strict=True)]
    unit = "seconds since the first transition" if size.timed else "rows read"
    out.figure("distance", distance_figure(curves, found.limit, unit))


def write(out: Out, size: Size, found: Findings) -> None:
    """d at shares of the budget, when LWA arrives, and what became of proposals."""
    full, light = found.paths
    out.table(
        "distance",
        ["share of the budget", "M-H, pixels", "LWA, pixels", "LWA after as many transitions as M-H, pixels",
         "M-H, control points", "LWA, control points"],
        [
            [f"{share:.0%}", *map(float, [*pixels, same, *controls])]
            for share, pixels, same, controls in zip(
                SHARES, found.at_shares["pixels"].T, found.same_moves, found.at_shares["controls"].T, strict=True
            )
        ],
    )  # fmt: skip
    start = {
        "pixels": distance(np.zeros(1), found.templates.phi(found.goal)),
        "controls": distance(np.zeros(1), found.goal),
    }
    spent = "seconds" if size.timed else "rows read"
    out.table(
        "arrival",
        ["", "pixels", "control points"],
        [
            ["d of a blank image, the start", *(float(start[space]) for space in SPACES)],
            ["d of M-H at the end", *(float(found.at_shares[space][0, -1]) for space in SPACES)],
            ["d of LWA at the end", *(float(found.at_shares[space][1, -1]) for space in SPACES)],
            ["where d of LWA goes, in closed form", *(found.limit[space] for space in SPACES)],
            [f"{spent} until LWA is as near as M-H at the end",
             *(found.arrival[space] * budget_of(size) for space in SPACES)],
            ["times sooner", *(1 / found.arrival[space] for space in SPACES)],
        ],
    )  # fmt: skip
    N, n = size.per_digit * len(DIGITS), size.subset_size
    counts = [count // len(DIGITS) for count in (N, n)]
    conditional = [block_variance(found.templates, count) for count in counts]
    round_ones = [round_variance(found.templates, count) for count in counts]
    variances = [path.proposal_variance for path in found.paths]
    rates = [path.moves[-1] / path.seconds[-1] for path in found.paths]

    def line(what: str, both: list[float], paper: str = "") -> list[Any]:
        return [what, *both, both[1] / both[0], paper]

    out.table(
        "proposals",
        ["", "M-H", "LWA", "ratio, LWA to M-H", "ratio in the paper"],
        [
            line("variance of a proposed control point, as adapted", variances, "10"),
            line("its sd", [float(np.sqrt(value)) for value in variances]),
            line("variance given the other blocks, in closed form", conditional),
            line("variance of a round walk, up to a factor, in closed form", round_ones),
            line("accepted", [full.accepted, light.accepted], "1 (0.25 each)"),
            line("rows read per transition", [N, n]),
            line("transitions", [int(path.moves[-1]) for path in found.paths]),
            line("transitions per second", rates),
            ["proposed subsets accepted", "", found.swaps_accepted, "", ""],
        ],
    )


if __name__ == "__main__":
    command("digits", run, SIZES, __doc__)
