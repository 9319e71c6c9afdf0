"""The certificate: what was measured, against what is tolerated, in words."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

SHIFT, WIDTH = 0.1, 1.05
"""What a parameter may be off without harm: its mean by a tenth of its sd, its sd by a factor of 1.05 either way."""
WORST_SHIFT, WORST_WIDTH = 0.2, 1.1
"""The same for the worst directions: among all combinations of parameters some are off by more than any parameter."""
CONFIDENCE = 0.99
"""With which all error bars of a certificate hold the truth together."""
RESOLUTION = 2.0
"""Error bars may be so many times the tolerance before a quantity counts as not measured."""
NEAR_GAUSSIAN = 0.9
"""R² below which effect sizes are called approximate."""


class Finding(NamedTuple):
    """One quantity against its tolerance; `size`, `bar` and `tolerance` share a unit.

    A second opinion is about something that another finding measures too. It may say more, but need not: that it is
    vague says nothing against the draws.
    """

    words: str
    size: float
    bar: float
    tolerance: float
    second_opinion: bool = False

    @property
    def condemned(self) -> bool:
        """Whether it is out of tolerance wherever in its bar the truth lies."""
        return self.size - self.bar > self.tolerance

    @property
    def unclear(self) -> bool:
        """Whether it is out of tolerance and not by chance, but maybe by little; or not measured well enough to say."""
        vague = not self.bar <= RESOLUTION * self.tolerance
        return self.size > max(self.tolerance, self.bar) or (vague and not self.second_opinion)


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """How far draws are from the posterior of all rows, in the region these draws visit; made by `lwa.certify`.

    Every `..._error` is an error bar: so many standard errors that all bars hold together in 99 of 100 certificates,
    plus what fitting the gradients nearer to π has changed, which is nothing where π is Gaussian.

    Attributes
    ----------
    names
        The parameters, one a scalar; on the unconstrained scale where they have constraints, such as `log(sigma)`.
    mean, sd
        Those of π as its gradients tell.
    shift, shift_error
        (mean of the draws - mean of π) / sd of π, for each parameter.
    sd_ratio, sd_ratio_error
        sd of the draws / sd of π, for each parameter.
    overall_shift, overall_shift_error
        √(ΔᵀHΔ), the shift along the worst of all directions, in sds of π.
    eigenvalues, eigenvalues_error
        Of H^½ Σ H^½: variance of the draws / variance of π along the directions where they differ the most and the
        least, found from one half of the draws and measured on the other. All are 1 for exact draws; where
        correlations are wrong, some are not, though every `sd_ratio` be 1.
    moved, moved_error
        By how many sds of π one exact move shifts the mean of each parameter. A draw θ moves to an independent θ' ~ G,
        the Gaussian with the mean and covariance of the draws, with probability α = min(1, π(θ')G(θ) / π(θ)G(θ')), and
        stays otherwise; what is told is E[α (θ' - θ)] / E[α]. It is 0 for exact draws whatever π is, about -`shift`
        for those shifted by little, and nearer to 0 for those that are far off.
    widened, widened_error
        By which share such a move changes the variance of each parameter (around the mean of the draws): 0 for exact
        draws whatever π is, negative for those too wide.
    total_variation, total_variation_error
        1 - E[α], the rate at which such moves are refused. For draws of π this bounds the total variation distance
        between π and G: 0 where π is Gaussian and its draws are many. It is no verdict on draws: exact ones of a π that
        is not Gaussian are refused as well, and G has d(d + 3)/2 numbers that few draws leave uncertain.
    r_squared
        How well a straight line explains the gradients: 1 where π is Gaussian. The further below, the more the sizes of
        effects are approximations. No effect is none whatever it is.
    effective_draws
        What the draws are worth, for the parameter that mixed worst.
    chains, draws, points, rows
        Chains, draws a chain, draws at which the gradient was taken, rows of the data.
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
        """Every quantity against its tolerance."""
        found = []
        for name, shift, error in zip(self.names, self.shift, self.shift_error, strict=True):
            found.append(Finding(f"{name} is shifted by {shift:.2f} ± {error:.2f} sd", abs(shift), error, SHIFT))
        for name, ratio, error in zip(self.names, self.sd_ratio, self.sd_ratio_error, strict=True):
            words = f"the sd of {name} is {ratio:.2f} ± {error:.2f} times the posterior's"
            found.append(Finding(words, *on_log_scale(ratio, error), float(np.log(WIDTH))))
        words = (
            f"along one direction the draws are shifted by {self.overall_shift:.2f} ± {self.overall_shift_error:.2f} sd"
        )
        found.append(Finding(words, self.overall_shift, self.overall_shift_error, WORST_SHIFT))
        for value, error in zip(self.eigenvalues, self.eigenvalues_error, strict=True):
            words = f"along one direction the variance is {value:.2f} ± {error:.2f} times the posterior's"
            found.append(Finding(words, *on_log_scale(value, error), float(2 * np.log(WORST_WIDTH))))
        for name, moved, error in zip(self.names, self.moved, self.moved_error, strict=True):
            words = f"an exact move shifts {name} by {moved:.2f} ± {error:.2f} sd"
            found.append(Finding(words, abs(moved), error, SHIFT, second_opinion=True))
        for name, widened, error in zip(self.names, self.widened, self.widened_error, strict=True):
            words = f"an exact move changes the variance of {name} by {widened:.0%} ± {error:.0%}"
            found.append(Finding(words, abs(widened), error, WIDTH**2 - 1, second_opinion=True))
        return found

    @cached_property
    def outcome(self) -> Literal["pass", "warn", "fail"]:
        """Fail where an effect is out of tolerance beyond its error bar, warn where that cannot be told, else pass."""
        if any(finding.condemned for finding in self.findings):
            return "fail"
        return "warn" if any(finding.unclear for finding in self.findings) else "pass"

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the draws, and enough was measured to say so."""
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
            text += (
                f" The posterior is not close to Gaussian (R² {self.r_squared:.2f}): sizes of effects are approximate."
            )
        return text

    def table(self) -> str:
        """Effects with their error bars, one line a parameter, then the worst directions and what exact moves do."""
        wide = max(len("variance ratio"), *map(len, self.names))
        lines = [f"{'':{wide}}  {'mean':>10} {'sd':>10}  {'shift / sd':>15}  {'sd ratio':>15}"]
        for row in zip(
            self.names,
            self.mean,
            self.sd,
            self.shift,
            self.shift_error,
            self.sd_ratio,
            self.sd_ratio_error,
            strict=True,
        ):
            name, mean, sd, *sizes = row
            shift, shift_error, ratio, ratio_error = (f"{size:.3f}" for size in sizes)
            lines.append(
                f"{name:{wide}}  {mean:>10.4g} {sd:>10.4g}  {shift + ' ± ' + shift_error:>15}  "
                f"{ratio + ' ± ' + ratio_error:>15}"
            )
        ends = [0, -1] if len(self.eigenvalues) > 1 else [0]
        extremes = ", ".join(f"{self.eigenvalues[i]:.3f} ± {self.eigenvalues_error[i]:.3f}" for i in ends)
        lines += [
            "Worst directions",
            f"{'shift / sd':{wide}}  {self.overall_shift:.3f} ± {self.overall_shift_error:.3f}",
            f"{'variance ratio':{wide}}  {extremes}",
            "An exact move",
            f"{'is refused':{wide}}  {self.total_variation:.3f} ± {self.total_variation_error:.3f}",
        ]
        for label, changes, errors in (
            ("shift / sd", self.moved, self.moved_error),
            ("variance", self.widened, self.widened_error),
        ):
            most = int(np.argmax(np.abs(changes)))
            lines.append(f"{label:{wide}}  {changes[most]:+.3f} ± {errors[most]:.3f} at most, of {self.names[most]}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in asdict(self).items()
        }
        return plain | {"outcome": self.outcome, "passed": self.passed, "verdict": self.verdict}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """The certificate that `as_dict` has written."""
        kept = {field.name: plain[field.name] for field in fields(cls)}
        arrays = {name: np.array(value) for name, value in kept.items() if isinstance(value, list) and name != "names"}
        return cls(**(kept | arrays))

    def __repr__(self) -> str:
        """Verdict, table and what they rest on."""
        return (
            f"lwa.Certificate: {self.verdict}\n{self.table()}\n"
            f"Gradients of {self.rows:,} rows at, and moves from, {self.points} of {self.chains} x {self.draws} draws; "
            f"R² {self.r_squared:.3f}, {self.effective_draws:.0f} effective draws. "
            f"±: error bars that hold together with {CONFIDENCE:.0%}."
        )


def on_log_scale(ratio: float, error: float) -> tuple[float, float]:
    """|log ratio| and its bar, so that twice too wide and half as wide are equally far from 1."""
    return abs(float(np.log(ratio))), float(np.log1p(error / ratio))


def standard_errors_a_bar(quantities: int) -> float:
    """How many standard errors make the bars of so many quantities hold together (Bonferroni): 3.4 for 16."""
    return NormalDist().inv_cdf(1.0 - (1.0 - CONFIDENCE) / (2 * quantities))
