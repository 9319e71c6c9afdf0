"""The certificate: each measured error against what is tolerated, and the verdict in words."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

TOLERATED_SHIFT, TOLERATED_WIDTH = 0.1, 1.05
"""The error of a parameter that does no harm: a tenth of its sd in the mean, a factor of 1.05 either way in the sd."""
TOLERATED_WORST_SHIFT, TOLERATED_WORST_WIDTH = 0.2, 1.1
"""The tolerance along the worst directions: some combinations of parameters are off by more than any parameter."""
CONFIDENCE = 0.99
"""Probability that all error bars of a certificate contain the truth at once."""
RESOLUTION = 2.0
"""A quantity counts as not measured if its error bar is longer than this many tolerances."""
NEAR_GAUSSIAN = 0.9
"""The verdict calls effect sizes approximate if R² is below this."""


class Finding(NamedTuple):
    """One quantity against its tolerance; `size`, `bar` and `tolerance` share a unit.

    A second opinion measures something that another finding measures too. If it is vague, that says nothing against
    the draws.
    """

    words: str
    size: float
    bar: float
    tolerance: float
    second_opinion: bool = False

    @property
    def condemned(self) -> bool:
        """Whether the quantity is out of tolerance wherever in its bar the truth lies."""
        return self.size - self.bar > self.tolerance

    @property
    def unclear(self) -> bool:
        """Whether it is out of tolerance beyond chance, though maybe by little; or measured too roughly to decide."""
        vague = not self.bar <= RESOLUTION * self.tolerance
        return self.size > max(self.tolerance, self.bar) or (vague and not self.second_opinion)


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """How far draws are from the posterior π of all rows, in the region these draws visit; made by `lwa.certify`.

    Every `..._error` is an error bar: so many standard errors that all bars hold at once in 99 of 100 certificates,
    plus what fitting the gradients nearer to π has changed, which is nothing if π is Gaussian.

    Attributes
    ----------
    names
        The parameters, one name per scalar; on the unconstrained scale if they have constraints, such as `log(sigma)`.
    mean, sd
        Mean and sd of π, estimated from its gradients.
    shift, shift_error
        (mean of the draws - mean of π) / sd of π, for each parameter.
    sd_ratio, sd_ratio_error
        sd of the draws / sd of π, for each parameter.
    overall_shift, overall_shift_error
        √(ΔᵀHΔ), the shift along the worst of all directions, in sds of π.
    eigenvalues, eigenvalues_error
        Of H^½ Σ H^½: variance of the draws / variance of π along the directions in which they differ the most and the
        least, found from one half of the draws and measured on the other. All are 1 for exact draws; if correlations
        are wrong, some are not, even if every `sd_ratio` is 1.
    moved, moved_error
        By how many sds of π one exact move shifts the mean of each parameter. A draw θ moves to an independent θ' ~ G,
        the Gaussian with the mean and covariance of the draws, with probability α = min(1, π(θ')G(θ) / π(θ)G(θ')), and
        stays otherwise; this is E[α (θ' - θ)] / E[α]. It is 0 for exact draws whatever π is, about -`shift` for draws
        shifted by little, and nearer to 0 for draws that are far off.
    widened, widened_error
        The relative change of the variance of each parameter (around the mean of the draws) by such a move: 0 for
        exact draws whatever π is, negative for draws that are too wide.
    total_variation, total_variation_error
        1 - E[α], the rate at which such moves are refused. For draws of π this bounds the total variation distance
        between π and G: 0 if π is Gaussian and its draws are many. It is no verdict on the draws: moves of exact draws
        are refused too if π is not Gaussian, and G has d(d + 3)/2 numbers that few draws leave uncertain.
    r_squared
        How well a straight line explains the gradients: 1 if π is Gaussian. The lower it is, the rougher are the sizes
        of effects. If there is no effect, none is found, whatever R² is.
    effective_draws
        Effective draws of the parameter that mixed worst.
    chains, draws, points, rows
        Chains, draws per chain, draws at which the gradient was taken, rows of the data.
    """

    names: list[str]
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    shift: NDArray[np.float64]
    shift_error: NDArray[np.float64]
    sd_ratio: NDArray[np.float64]
    sd_ratio_error: NDArray[np.float64]
    overall_shift: float
    overall_shift_error: float
    eigenvalues: NDArray[np.float64]
    eigenvalues_error: NDArray[np.float64]
    moved: NDArray[np.float64]
    moved_error: NDArray[np.float64]
    widened: NDArray[np.float64]
    widened_error: NDArray[np.float64]
    total_variation: float
    total_variation_error: float
    r_squared: float
    effective_draws: float
    chains: int
    draws: int
    points: int
    rows: int

    @cached_property
    def findings(self) -> list[Finding]:
        """Every measured quantity with its tolerance."""
        found = []
        for name, shift, error in zip(self.names, self.shift, self.shift_error, strict=True):
            words = f"{name} is shifted by {shift:.2f} ± {error:.2f} sd"
            found.append(Finding(words, abs(shift), error, TOLERATED_SHIFT))
        for name, ratio, error in zip(self.names, self.sd_ratio, self.sd_ratio_error, strict=True):
            words = f"the sd of {name} is {ratio:.2f} ± {error:.2f} times the posterior's"
            found.append(Finding(words, *to_log_scale(ratio, error), float(np.log(TOLERATED_WIDTH))))
        shift, error = self.overall_shift, self.overall_shift_error
        words = f"along one direction the draws are shifted by {shift:.2f} ± {error:.2f} sd"
        found.append(Finding(words, shift, error, TOLERATED_WORST_SHIFT))
        for value, error in zip(self.eigenvalues, self.eigenvalues_error, strict=True):
            words = f"along one direction the variance is {value:.2f} ± {error:.2f} times the posterior's"
            found.append(Finding(words, *to_log_scale(value, error), float(2 * np.log(TOLERATED_WORST_WIDTH))))
        for name, moved, error in zip(self.names, self.moved, self.moved_error, strict=True):
            words = f"an exact move shifts {name} by {moved:.2f} ± {error:.2f} sd"
            found.append(Finding(words, abs(moved), error, TOLERATED_SHIFT, second_opinion=True))
        for name, widened, error in zip(self.names, self.widened, self.widened_error, strict=True):
            words = f"an exact move changes the variance of {name} by {widened:.0%} ± {error:.0%}"
            found.append(Finding(words, abs(widened), error, TOLERATED_WIDTH**2 - 1, second_opinion=True))
        return found

    @cached_property
    def outcome(self) -> Literal["pass", "warn", "fail"]:
        """`"fail"` if an effect exceeds its tolerance beyond its error bar, `"warn"` if unclear, else `"pass"`."""
        if any(finding.condemned for finding in self.findings):
            return "fail"
        return "warn" if any(finding.unclear for finding in self.findings) else "pass"

    @property
    def passed(self) -> bool:
        """Whether the outcome is `"pass"`: nothing speaks against the draws, and enough was measured to say so."""
        return self.outcome == "pass"

    @cached_property
    def verdict(self) -> str:
        """The outcome in words."""
        worst = max(self.findings, key=lambda finding: (finding.size - finding.bar) / finding.tolerance).words
        if self.outcome == "fail":
            text = f"fail: in the region these draws visit they are not draws of the posterior of all rows: {worst}."
        elif self.outcome == "pass":
            shift = max(np.abs(self.shift) + self.shift_error)
            width = max(np.abs(np.log(self.sd_ratio)) + np.log1p(self.sd_ratio_error / self.sd_ratio))
            text = (
                "pass: in the region these draws visit nothing sets them apart from the posterior of all rows. Means "
                f"are right to {shift:.2g} sd and sds to {np.expm1(width):.1%} at the worst, error bars included. "
                f"{1 - self.total_variation:.0%} of exact moves are accepted, and no mean moves by more than "
                f"{max(np.abs(self.moved) + self.moved_error):.2g} sd."
            )
        else:
            vague = max((finding for finding in self.findings if finding.unclear), key=lambda f: f.bar / f.tolerance)
            remedy = f"Draw more (these are worth {self.effective_draws:.0f} independent ones)"
            if self.r_squared < NEAR_GAUSSIAN:
                remedy += f", or pass points={4 * self.points}"
            text = f"warn: cannot tell, in the region these draws visit: {vague.words}. {remedy}."
        if self.r_squared < NEAR_GAUSSIAN:
            text += f" The posterior is not close to Gaussian (R² {self.r_squared:.2f}): effect sizes are approximate."
        return text

    def table(self) -> str:
        """Return effects with error bars, one line per parameter, then the worst directions and what exact moves do."""
        wide = max(len("variance ratio"), *map(len, self.names))
        lines = [f"{'':{wide}}  {'mean':>10} {'sd':>10}  {'shift / sd':>15}  {'sd ratio':>15}"]
        for i, name in enumerate(self.names):
            shift = f"{self.shift[i]:.3f} ± {self.shift_error[i]:.3f}"
            ratio = f"{self.sd_ratio[i]:.3f} ± {self.sd_ratio_error[i]:.3f}"
            lines.append(f"{name:{wide}}  {self.mean[i]:>10.4g} {self.sd[i]:>10.4g}  {shift:>15}  {ratio:>15}")
        ends = [0, -1] if len(self.eigenvalues) > 1 else [0]
        extremes = ", ".join(f"{self.eigenvalues[i]:.3f} ± {self.eigenvalues_error[i]:.3f}" for i in ends)
        lines += [
            "Worst directions",
            f"{'shift / sd':{wide}}  {self.overall_shift:.3f} ± {self.overall_shift_error:.3f}",
            f"{'variance ratio':{wide}}  {extremes}",
            "An exact move",
            f"{'is refused':{wide}}  {self.total_variation:.3f} ± {self.total_variation_error:.3f}",
        ]
        moved, widened = ("shift / sd", self.moved, self.moved_error), ("variance", self.widened, self.widened_error)
        for label, changes, errors in (moved, widened):
            most = int(np.argmax(np.abs(changes)))
            lines.append(f"{label:{wide}}  {changes[most]:+.3f} ± {errors[most]:.3f} at most, of {self.names[most]}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers, the outcome and the verdict as JSON can hold them."""
        numbers = asdict(self).items()
        plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in numbers}
        return plain | {"outcome": self.outcome, "passed": self.passed, "verdict": self.verdict}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return the certificate that `as_dict` wrote."""
        kept = {field.name: plain[field.name] for field in fields(cls)}
        arrays = {name: np.array(value) for name, value in kept.items() if isinstance(value, list) and name != "names"}
        return cls(**(kept | arrays))

    def __repr__(self) -> str:
        """Return verdict, table and what they rest on."""
        return (
            f"lwa.Certificate: {self.verdict}\n{self.table()}\n"
            f"Gradients of {self.rows:,} rows at, and moves from, {self.points} of {self.chains} x {self.draws} draws; "
            f"R² {self.r_squared:.3f}, {self.effective_draws:.0f} effective draws. "
            f"±: error bars that hold at once with {CONFIDENCE:.0%}."
        )


def to_log_scale(ratio: float, error: float) -> tuple[float, float]:
    """Return |log ratio| and its bar, so that twice as wide and half as wide are equally far from 1."""
    return abs(float(np.log(ratio))), float(np.log1p(error / ratio))


def standard_errors_per_bar(quantities: int) -> float:
    """Return how many standard errors make the bars of so many quantities hold at once (Bonferroni): 3.4 for 16."""
    return NormalDist().inv_cdf(1.0 - (1.0 - CONFIDENCE) / (2 * quantities))
