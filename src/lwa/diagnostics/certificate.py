"""The certificate: each measured error against what is tolerated, and the verdict in words."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lwa.diagnostics.shapes import TAIL
from lwa.diagnostics.short_chains import round_up

TOLERATED_SHIFT, TOLERATED_WIDTH = 0.1, 1.07
"""The error of a parameter that does no harm: a tenth of its sd in the mean, a factor of 1.07 either way in the sd."""
TOLERATED_SKEWNESS, TOLERATED_TAIL = 0.25, 0.02
"""An error of 0.25 in the skewness moves a 97.5 % limit by 0.12 sd. Each end of a 90 % interval cuts off 3 to 7 %."""
TOLERATED_WORST_SHIFT, TOLERATED_WORST_WIDTH = 0.2, 1.1
"""The tolerance along the worst directions: some combinations of parameters are off by more than any parameter."""
CONFIDENCE = 0.99
"""Probability that all error bars of a certificate contain the truth at once."""
NOT_MEASURED = 5.0
"""A quantity counts as not measured at all if its error bar is longer than this many tolerances."""
NEAR_GAUSSIAN = 0.9
"""The verdict calls effect sizes approximate if R² is below this."""
COLUMNS = {"shift / sd": 13, "sd ratio": 13, "skewness": 12, "beyond 90 % ends": 16}
NOTHING = "not measured"
INTERVAL = 3.29
"""Length of a Gaussian's central 90 % interval, in sds."""
PASSES, LONGER = 10, 4
"""Corrections by `fit.polish`, and how many times as many draws of an exact algorithm, that a remedy names."""
LARGER = 4
"""How many times as large a subset a remedy names, if no step can read all rows."""
MOST_ASKED, MARGIN = 20_000, 1.2
"""Gradients that a remedy asks for at the most, and how many times as many as it seems to need."""
LONGEST = 1.5
"""A PASS speaks of the draws at hand, whose errors are measured, whatever chance had to do with them. Their Monte Carlo
error, which another run of the same length would have too, may be so many tolerances long: some 700 effective draws."""
SHARE = 0.8
"""Share of what is allowed that a remedy leaves to the Monte Carlo error of draws, and to that of their gradients."""


class Finding(NamedTuple):
    """One quantity against its tolerance; `size`, `bar`, `tolerance` and `by_chance` share a unit.

    `by_chance` is the part of the bar that is the Monte Carlo error of the draws. A second opinion measures something
    that another finding measures too. If it is vague, that says nothing against the draws.
    """

    subject: str
    words: str
    size: float
    bar: float
    tolerance: float
    by_chance: float = 0.0
    second_opinion: bool = False

    @property
    def measured(self) -> float:
        """How far the size may be from the error of the draws at hand."""
        return subtract_error(self.bar, self.by_chance)

    @property
    def condemned(self) -> bool:
        """Whether the quantity is out of tolerance wherever in its bar the truth lies."""
        return self.size - self.bar > self.tolerance

    @property
    def off(self) -> bool:
        """Whether it is out of tolerance beyond chance, though maybe by little."""
        return self.size > max(self.tolerance, self.bar)

    @property
    def vague(self) -> bool:
        """Whether it was measured too roughly to decide."""
        known = max(self.measured, self.size, self.by_chance / LONGEST) <= self.tolerance
        return not self.second_opinion and not known

    @property
    def unclear(self) -> bool:
        """Whether nothing can be said for the draws."""
        return self.off or self.vague

    def __str__(self) -> str:
        """Return what was found, or that nothing was."""
        if not self.condemned and self.bar > NOT_MEASURED * self.tolerance:
            return f"{self.subject} could not be measured"
        return f"{self.subject} {self.words}"


class MadeBy(NamedTuple):
    """What made the draws: lwa, with subsets of so many of all units, or another sampler, with neither number.

    If each step or correction took all rows into account, `subset_size` is `whole`.
    """

    subset_size: int | None = None
    whole: int | None = None
    in_one_step: bool = False  # whether a step could read all rows


ANOTHER = MadeBy()


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """How far draws are from the posterior π of all rows, in the region these draws visit; made by `lwa.certify`.

    It certifies the computation, not the model. Every `..._error` is an error bar: so many standard errors that all
    bars hold at once in 99 of 100 certificates. Each bar holds the Monte Carlo error of all draws, that of the
    gradients at some of them, and that of the rows if some of them stood for all. A FAIL is beyond these bars: another
    run would be off too. A PASS is about the draws at hand, and so are the bars that are printed: by how much their
    mean is off is known better than by how much that of another run would be.

    Attributes
    ----------
    names
        The parameters, one name per scalar; on the unconstrained scale if they have constraints, such as `log(sigma)`.
    mean, sd
        Mean and sd of π.
    shift, shift_error
        (mean of the draws - mean of π) / sd of π, for each parameter.
    log_ratio, log_ratio_error
        log(sd of the draws / sd of π), for each parameter.
    skewness, skewness_error
        Skewness of the draws less that of π, draws beyond three sds taken less into account.
    outside, outside_error
        Shares of π below and above the draws' central 90 % interval, `(d, 2)`: 0.05 if the interval is right.
    overall_shift, overall_shift_error
        √(ΔᵀHΔ), the shift along the worst of all directions, in sds of π.
    log_widths, log_widths_error
        log(sd of the draws / sd of π) along the directions in which they differ the most and the least, found from one
        half of the draws and measured on the other. All are 0 for exact draws; if correlations are wrong, some are not,
        even if every sd is right.
    by_chance, worst_by_chance
        The part of the bars that is the Monte Carlo error of the draws: of shift, log ratio, skewness and the shares
        below and above, `(d, 5)`, and along the worst directions, the shift first.
    moved, moved_error
        By how much an exact move changes mean (in sds), variance (relative), skewness and the shares below and above
        the 90 % interval, `(d, 5)`. A draw θ moves to an independent θ' ~ G, the Gaussian with the mean and covariance
        of the draws, with probability α = min(1, π(θ')G(θ) / π(θ)G(θ')), and stays otherwise; this is
        E[α (f(θ') - f(θ))] / E[α]. It is 0 for exact draws whatever π is: a second opinion, which uses no gradient.
    total_variation, total_variation_error
        1 - E[α], the rate at which such moves are refused. For draws of π this bounds the total variation distance
        between π and G: 0 if π is Gaussian and its draws are many. It is no verdict on the draws: moves of exact draws
        are refused too if π is not Gaussian, and G has d(d + 3)/2 numbers that few draws leave uncertain.
    r_squared
        How well a straight line explains the gradients: 1 if π is Gaussian. The lower it is, the rougher are the sizes
        of effects. If there is no effect, none is found, whatever R² is.
    effective_draws
        Effective draws of the parameter that mixed worst.
    lacking_draws, lacking_points
        How many times as many draws, and gradients, would make all bars short enough for a verdict; at least 1.
    chains, draws, points, rows
        Chains, draws per chain, draws at which the gradient was taken, rows of the data.
    read
        Rows that stood for all rows; 0 if all rows were read at every point.
    made_by
        How the draws were made, from which the remedy follows.
    """

    names: list[str]
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]
    shift: NDArray[np.float64]
    shift_error: NDArray[np.float64]
    log_ratio: NDArray[np.float64]
    log_ratio_error: NDArray[np.float64]
    skewness: NDArray[np.float64]
    skewness_error: NDArray[np.float64]
    outside: NDArray[np.float64]
    outside_error: NDArray[np.float64]
    overall_shift: float
    overall_shift_error: float
    log_widths: NDArray[np.float64]
    log_widths_error: NDArray[np.float64]
    by_chance: NDArray[np.float64]
    worst_by_chance: NDArray[np.float64]
    moved: NDArray[np.float64]
    moved_error: NDArray[np.float64]
    total_variation: float
    total_variation_error: float
    r_squared: float
    effective_draws: float
    lacking_draws: float
    lacking_points: float
    chains: int
    draws: int
    points: int
    rows: int
    read: int
    made_by: MadeBy

    @property
    def sd_ratio(self) -> NDArray[np.float64]:
        """Sd of the draws / sd of π, for each parameter."""
        return np.exp(self.log_ratio)

    @property
    def sd_ratio_error(self) -> NDArray[np.float64]:
        """How far the ratio reaches upwards, from a bar on the log scale."""
        return self.sd_ratio * np.expm1(self.log_ratio_error)

    @property
    def eigenvalues(self) -> NDArray[np.float64]:
        """Of H^½ Σ H^½: variance of the draws / variance of π along the directions of `log_widths`."""
        return np.exp(2 * self.log_widths)

    @property
    def eigenvalues_error(self) -> NDArray[np.float64]:
        """How far the eigenvalues reach upwards."""
        return self.eigenvalues * np.expm1(2 * self.log_widths_error)

    @cached_property
    def findings(self) -> list[Finding]:
        """Every measured quantity with its tolerance."""
        found = list[Finding]()
        for i, name in enumerate(self.names):
            found += self._find_effects(i, name)
        shift, error = self.overall_shift, self.overall_shift_error
        words, chance = f"is shifted by {shift:.2f} ± {error:.2f} sd", self.worst_by_chance
        found.append(
            Finding("a combination of parameters", words, shift, error, TOLERATED_WORST_SHIFT, by_chance=chance[0])
        )
        widest = float(np.log(TOLERATED_WORST_WIDTH))
        for width, error, own in zip(self.log_widths, self.log_widths_error, chance[1:], strict=True):
            words = f"is {show_ratio(width, error)} times the posterior's"
            found.append(
                Finding("the sd of a combination of parameters", words, abs(width), error, widest, by_chance=own)
            )
        for i, name in enumerate(self.names):
            found += [one for one in self._find_moves(i, name) if one.bar <= one.tolerance or one.off]
        return found

    def _find_effects(self, i: int, name: str) -> list[Finding]:
        """Return what the gradients say of a parameter."""
        shift, ratio, skewness, chance = self.shift[i], self.log_ratio[i], self.skewness[i], self.by_chance[i]
        bars = self.shift_error[i], self.log_ratio_error[i], self.skewness_error[i]
        widest = float(np.log(TOLERATED_WIDTH))
        found = [
            Finding(name, f"is shifted by {shift:.2f} ± {bars[0]:.2f} sd", abs(shift), bars[0], TOLERATED_SHIFT,
                    by_chance=chance[0]),
            Finding(f"the sd of {name}", f"is {show_ratio(ratio, bars[1])} times the posterior's", abs(ratio), bars[1],
                    widest, by_chance=chance[1]),
            Finding(f"the skewness of {name}", f"is off by {skewness:.2f} ± {bars[2]:.2f}", abs(skewness), bars[2],
                    TOLERATED_SKEWNESS, by_chance=chance[2]),
        ]  # fmt: skip
        tails = zip(("lower", "upper"), self.outside[i], self.outside_error[i], chance[3:], strict=True)
        for side, share, bar, own in tails:
            subject = f"the {side} end of the 90 % interval of {name}"
            words = f"cuts off {100 * share:.1f} ± {100 * bar:.1f} % of the posterior, not 5 %"
            found.append(Finding(subject, words, abs(share - TAIL), bar, TOLERATED_TAIL, by_chance=own))
        return found

    def _find_moves(self, i: int, name: str) -> list[Finding]:
        """Return what exact moves say of a parameter."""
        tolerances = (TOLERATED_SHIFT, TOLERATED_WIDTH**2 - 1, TOLERATED_SKEWNESS, TOLERATED_TAIL, TOLERATED_TAIL)
        found = []
        for place, (size, bar) in enumerate(zip(self.moved[i], self.moved_error[i], strict=True)):
            words = (
                f"shifts {name} by {size:.2f} ± {bar:.2f} sd",
                f"changes the variance of {name} by {size:.0%} ± {bar:.0%}",
                f"changes the skewness of {name} by {size:.2f} ± {bar:.2f}",
                f"changes the share of {name} below its 90 % interval by {100 * size:.1f} ± {100 * bar:.1f} %",
                f"changes the share of {name} above its 90 % interval by {100 * size:.1f} ± {100 * bar:.1f} %",
            )[place]
            found.append(Finding("an exact move", words, abs(size), bar, tolerances[place], second_opinion=True))
        return found

    @cached_property
    def outcome(self) -> Literal["pass", "warn", "fail"]:
        """`"fail"` if an effect exceeds its tolerance beyond its error bar, `"warn"` if unclear, else `"pass"`."""
        if any(finding.condemned for finding in self.findings):
            return "fail"
        return "warn" if any(finding.unclear for finding in self.findings) else "pass"

    @property
    def passed(self) -> bool:
        """Whether the outcome is `"pass"`: all that was measured is within tolerance, error bars too."""
        return self.outcome == "pass"

    @cached_property
    def verdict(self) -> str:
        """The outcome in words."""
        if self.outcome == "fail":
            worst = max(self.findings, key=lambda finding: (finding.size - finding.bar) / finding.tolerance)
            text = f"fail: in the region these draws visit they are not draws of the posterior of all rows: {worst}."
            text += f" {self.remedy}"
        elif self.outcome == "pass":
            text = (
                f"pass: in the region these draws visit, means are right to {self._worst_shift:.2g} sd, sds to "
                f"{self._worst_width:.1%}, skewness to {self._worst_skewness:.2g} and each "
                f"end of a 90 % interval to {100 * self._worst_tail:.1f} % of the posterior, error bars included."
            )
        else:
            text = f"warn: cannot tell, in the region these draws visit: {self._least_clear}. {self.remedy}"
        if self.r_squared < NEAR_GAUSSIAN:
            text += f" The posterior is not close to Gaussian (R² {self.r_squared:.2f}): effect sizes are approximate."
        return text

    @property
    def _measured(self) -> NDArray[np.float64]:
        """Bars `(d, 5)` of the errors of the draws at hand."""
        bars = np.column_stack([self.shift_error, self.log_ratio_error, self.skewness_error, self.outside_error])
        return subtract_error(bars, self.by_chance)

    @property
    def _worst_shift(self) -> float:
        return float(max(np.abs(self.shift) + self._measured[:, 0]))

    @property
    def _worst_width(self) -> float:
        return float(np.expm1(max(np.abs(self.log_ratio) + self._measured[:, 1])))

    @property
    def _worst_skewness(self) -> float:
        return float(max(np.abs(self.skewness) + self._measured[:, 2]))

    @property
    def _worst_tail(self) -> float:
        return float((np.abs(self.outside - TAIL) + self._measured[:, 3:]).max())

    @property
    def _least_clear(self) -> Finding:
        """What is off, or else what is measured the worst."""
        unclear = [finding for finding in self.findings if finding.unclear]
        return max(unclear, key=lambda finding: (finding.off, max(finding.size, finding.bar) / finding.tolerance))

    @property
    def advice(self) -> dict[str, int]:
        """What to pass for a verdict: to the sampler (`draws` per chain, `subset_size`), `certify` (`points`), or
        `fit.polish` (`passes`).
        """
        if self.outcome == "pass":
            return {}
        made = self.made_by
        if self.outcome == "fail" or any(finding.off for finding in self.findings):
            if made.whole is None:
                return {}
            if made.subset_size == made.whole:
                return {"draws": round_up(LONGER * self.draws)}
            return {"subset_size": made.whole} if made.in_one_step else {"passes": PASSES}
        points = self.points if self.lacking_points <= 1.0 else grow(self.points, MARGIN * self.lacking_points)
        if points > MOST_ASKED:
            return self._ask_for_rows()
        draws = self.draws if self.lacking_draws <= 1.0 else grow(self.draws, self.lacking_draws)
        if points > self.chains * draws:
            draws = grow(points, 1 / self.chains)
        wanted = {"draws": draws} if draws > self.draws else {}
        return wanted | ({"points": points} if points > self.points else {})

    def _ask_for_rows(self) -> dict[str, int]:
        """Return a larger subset, if draws came from subsets, which may have led them where gradients tell nothing."""
        made = self.made_by
        if made.whole is None or made.subset_size is None or made.subset_size >= made.whole:
            return {}
        return {"subset_size": made.whole if made.in_one_step else min(made.whole, LARGER * made.subset_size)}

    @property
    def remedy(self) -> str:
        """What to do about a warning or a failure, and what it costs."""
        if self.outcome == "pass":
            return ""
        advice, off = self.advice, self.outcome == "fail" or any(finding.off for finding in self.findings)
        if not off:
            return self._ask_for_more(advice)
        if not advice:
            return (
                "This is more than chance, so more draws will not change it. Draw from the posterior itself, with NUTS "
                "or lwa.sample(model, data)."
            )
        if size := advice.get("subset_size"):
            return (
                "This is more than chance, so more draws will not change it. Sample again with "
                f"subset_size={size}: each step then reads all of them, not {self.made_by.subset_size}."
            )
        if passes := advice.get("passes"):
            return (
                "This is more than chance, so more draws will not change it. Correct the draws with "
                f"fit.polish({passes}), which computes the posterior of all rows {passes + 1} times for each of up to "
                "1,000 draws, or sample with exact=True or a larger subset_size."
            )
        return f"Each step took all rows into account, so chains were too short: pass draws={advice['draws']}."

    def _ask_for_more(self, advice: dict[str, int]) -> str:
        """Return which of draws and gradients are too few."""
        points, draws = advice.get("points"), advice.get("draws")
        if size := advice.get("subset_size"):
            return (
                "Gradients at these draws do not tell: the posterior is too far from Gaussian, or subsets of "
                f"{self.made_by.subset_size} led the chains astray. Sample again with subset_size={size}."
            )
        if draws is None and points is None:
            return (
                "This posterior is too far from Gaussian for gradients to tell. Compare these draws with those of a "
                "second run, from other starts, of a sampler that takes all rows into account."
            )
        if draws is None:
            return f"Take more gradients: pass points={points} to certify."
        text = (
            f"Draw more: these are worth {self.effective_draws:.0f} independent ones, and {self.chains} chains of "
            f"draws={draws} would do"
        )
        return f"{text}." if points is None else f"{text}, with points={points} for certify."

    @property
    def meaning(self) -> str:
        """What the verdict says and what it does not."""
        text = "This certifies the computation, not the model: a model that does not fit its data has exact draws too."
        if self.outcome != "pass":
            return text
        shift, share = self._worst_shift, self._worst_shift / INTERVAL
        return f"{text} A mean that is off by {shift:.2g} sd moves a 90 % interval by {share:.1%} of its length."

    def cells(self, i: int) -> tuple[str, str, str, str]:
        """Return shift, sd ratio, error of the skewness, and what lies beyond the 90 % interval, of one parameter."""
        (below, above), bars = 100 * self.outside[i], self._measured[i]
        bar = 100 * bars[3:].max()
        tails = f"{below:.1f}, {above:.1f} ± {bar:.1f} %" if bar <= 100 * NOT_MEASURED * TOLERATED_TAIL else NOTHING
        ratio = float(self.sd_ratio[i])
        return (
            show(self.shift[i], bars[0], TOLERATED_SHIFT),
            show(ratio, ratio * np.expm1(bars[1]), TOLERATED_WIDTH - 1),
            show(self.skewness[i], bars[2], TOLERATED_SKEWNESS, "+.2f"),
            tails,
        )

    def table(self) -> str:
        """Return effects with error bars, one line per parameter, then the worst directions and what exact moves do."""
        wide = max(len("variance ratio"), *map(len, self.names))
        lines = [f"{'':{wide}}  {'mean':>9} {'sd':>9}" + "".join(f"  {head:>{size}}" for head, size in COLUMNS.items())]
        for i, name in enumerate(self.names):
            row = "".join(f"  {cell:>{size}}" for cell, size in zip(self.cells(i), COLUMNS.values(), strict=True))
            lines.append(f"{name:{wide}}  {self.mean[i]:>9.4g} {self.sd[i]:>9.4g}{row}")
        ends = [0, -1] if len(self.eigenvalues) > 1 else [0]
        limit, chance = TOLERATED_WORST_WIDTH**2 - 1, self.worst_by_chance
        shift_bar = subtract_error(self.overall_shift_error, chance[0])
        bars = self.eigenvalues * np.expm1(2 * subtract_error(self.log_widths_error, chance[1:]))
        extremes = ", ".join(show(self.eigenvalues[i], bars[i], limit) for i in ends)
        lines += [
            "Worst directions",
            f"{'shift / sd':{wide}}  {show(self.overall_shift, shift_bar, TOLERATED_WORST_SHIFT)}",
            f"{'variance ratio':{wide}}  {extremes}",
            "An exact move",
            f"{'is refused':{wide}}  {self.total_variation:.3f} ± {self.total_variation_error:.3f}",
        ]
        for label, place, limit in (("shift / sd", 0, TOLERATED_SHIFT), ("variance", 1, TOLERATED_WIDTH**2 - 1)):
            most = int(np.argmax(np.abs(self.moved[:, place])))
            cell = show(self.moved[most, place], self.moved_error[most, place], limit / NOT_MEASURED, "+.3f")
            lines.append(f"{label:{wide}}  {cell}" + f" at most, of {self.names[most]}" * (cell != NOTHING))
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers, the outcome and the verdict as JSON can hold them."""
        numbers = asdict(self).items()
        plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in numbers}
        said = {"outcome": self.outcome, "passed": self.passed, "verdict": self.verdict, "meaning": self.meaning}
        ratios = {"sd_ratio": self.sd_ratio.tolist(), "sd_ratio_error": self.sd_ratio_error.tolist()}
        return plain | said | ratios | {"made_by": self.made_by._asdict()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return the certificate that `as_dict` wrote."""
        kept = {field.name: plain[field.name] for field in fields(cls)}
        arrays = {name: np.array(value) for name, value in kept.items() if isinstance(value, list) and name != "names"}
        return cls(**(kept | arrays | {"made_by": MadeBy(**kept["made_by"])}))

    @property
    def source(self) -> str:
        """What the numbers rest on."""
        rows = f"all {self.rows:,} rows"
        if self.read:
            rows += f" (all of them at one point, {self.read:,} at the others, checked on all at some)"
        return f"Gradients of {rows} at, and moves from, {self.points} of {self.chains} x {self.draws} draws"

    def __repr__(self) -> str:
        """Return verdict, table and what they rest on."""
        return (
            f"lwa.Certificate: {self.verdict}\n{self.meaning}\n{self.table()}\n"
            f"{self.source}; R² {self.r_squared:.3f}, {self.effective_draws:.0f} effective draws. "
            f"±: error bars of these draws, which hold at once with {CONFIDENCE:.0%}."
        )


def grow(count: int, factor: float) -> int:
    """Return a round number that is larger by the factor at least."""
    return round_up(int(factor * count) + 1)


def subtract_error(bar: Any, part: Any) -> Any:
    """Return what is left of error bars, numbers or arrays, without an independent part of the error."""
    return np.sqrt(np.maximum(bar**2 - part**2, 0.0))


def show_ratio(log_ratio: float, bar: float) -> str:
    """Return a ratio with how far it reaches upwards."""
    ratio = np.exp(log_ratio)
    return f"{ratio:.2f} ± {ratio * np.expm1(bar):.2f}"


def show(value: float, bar: float, tolerance: float, style: str = ".3f") -> str:
    """Return a number with its bar, or that it was not measured."""
    return NOTHING if bar > NOT_MEASURED * tolerance else f"{value:{style}} ± {bar:{style.lstrip('+')}}"


def standard_errors_per_bar(quantities: int) -> float:
    """Return how many standard errors make the bars of so many quantities hold at once (Bonferroni): 3.4 for 16."""
    return NormalDist().inv_cdf(1.0 - (1.0 - CONFIDENCE) / (2 * quantities))
