"""Design: how many rows a subset has, how they are drawn, and how its curvature becomes that of all rows.

What the rows of U add beyond second order, S_U(δ), has a variance over subsets. One pass over all rows measures it
within the posterior's reach. If it is small, subsets are uniform. If not, rows are drawn by influence, the error that
is left is predicted, and n grows until it is small, unless the user chose n.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from lwa.data.data import Data
from lwa.rows import Rows
from lwa.rows.passes import find_strata
from lwa.run.pilot import Pool, gather_pool
from lwa.run.settings import DEFAULT_SIZE, MOST_ROWS, Settings
from lwa.subsets.influence import find_influence
from lwa.subsets.leverage import find_leverage
from lwa.subsets.strata import Drawing, SizeStrata, stratify
from lwa.targets.calibration import is_leverage_needed, is_transport_safe, takes_second_order
from lwa.targets.reference import Reference, Remainders, sum_remainders

NEGLIGIBLE = 0.005
"""Error of uniform subsets, roughly predicted, up to which nothing else is tried."""
NEARLY_GAUSSIAN = 5.0
"""Nats by which the log posterior may differ from its second order within reach, for that prediction to be enough: a
skewed posterior reaches further than it looks."""
STEEP = 0.1
"""Variance over subsets four sds out along an axis, up to which the tails hold: v grows like z⁶ and stays below z². The
same for the share by which one row raises the mean density within reach: transport scales such a row down, second order
does not."""
CHEAP_ROWS = 20_000
"""Rows up to which all of them are read if a subset would not do."""


@dataclass(frozen=True)
class Design:
    """How subsets are drawn, and what the target takes from them."""

    n: int
    second_order: bool = False  # rows are expanded to second order, so that the curvature is that of all rows
    leverage: Drawing | None = None  # q; uniform if None
    predicted: float | None = None  # the error that is left, in posterior sds; None if unknown

    def cut(self, rows: Rows) -> Drawing | None:
        """Return q for subsets of n rows; of groups in strata of size, stratum by stratum even if it is uniform."""
        strata, q = find_strata(rows), self.leverage
        if strata is None or isinstance(q, SizeStrata):
            return q
        return stratify(strata, None if q is None else q.size).cut(self.n)


@dataclass(frozen=True, eq=False)
class Designer:
    """Chooses designs; each of its passes over all rows is made once, if it is needed."""

    data: Data
    settings: Settings
    reference: Reference | None

    def choose(self, n: int) -> Design:
        """Return the design of subsets of n rows."""
        data, options = self.data, self.settings.calibration
        if options is None or self.reference is None or data.ordered or n == len(data.full):
            return Design(n)
        second_order = prefers_second_order(data, self.settings)
        if self.settings.summary is not None or options.transport is False:
            return Design(n, second_order, self._find_leverage(n))
        if options.transport is True or data.model.in_python:
            leverage = self._find_leverage(n)
            return Design(n, second_order, leverage, self._predict(n, leverage))
        rough = self._remainders.predict_error(n)
        if options.leverage is not True and rough <= NEGLIGIBLE and self._is_near_gaussian(n):
            second_order = second_order or not self._is_transport_safe(n)
            if not second_order or self._remainders.raise_by_one_row(n) <= STEEP:
                return Design(n, second_order, None, rough)
        influence = None if options.leverage is False else self._influence.cut(n)
        return Design(n, True, influence, self._pool.predict_error(n, influence))

    def enlarge(self, design: Design) -> Design:
        """Return a design whose error is tolerable, with as few rows as that takes, as far as steps stay cheap."""
        options, N = self.settings.calibration, len(self.data.full)
        while design.predicted is not None and options is not None and design.predicted > options.tolerance:
            n = 2 * design.n
            if len(self.data) <= (MOST_ROWS if 2 * n > N else CHEAP_ROWS):
                return Design(N)
            if n > min(N, max(DEFAULT_SIZE, MOST_ROWS * N // len(self.data))):
                break
            leverage = None if design.leverage is None else design.leverage.cut(n)
            design = replace(design, n=n, leverage=leverage, predicted=self._predict(n, leverage))
        return design

    def _is_near_gaussian(self, n: int) -> bool:
        """Return whether the rough prediction is enough: all rows are near second order, and so are subsets."""
        return self._remainders.furthest <= NEARLY_GAUSSIAN and self._remainders.vary_along_axes(n) <= STEEP

    def _predict(self, n: int, leverage: Drawing | None) -> float:
        """Return the predicted error of subsets of n rows."""
        rough = self._remainders.predict_error(n)
        return rough if leverage is None and rough <= NEGLIGIBLE else self._pool.predict_error(n, leverage)

    def _find_leverage(self, n: int) -> Drawing | None:
        """Return q by curvature if it is asked for, or if uniform subsets of size n miss a direction."""
        data, reference, seed, options = self.data, self.reference, self.settings.seed, self.settings.calibration
        assert reference is not None
        assert options is not None
        if options.leverage is False:
            return None
        if options.leverage is True or is_leverage_needed(data.model, data.full, n, reference, seed):
            return self._leverage.cut(n)
        return None

    def _is_transport_safe(self, n: int) -> bool:
        """Return whether uniform subsets of n rows can be transported."""
        assert self.reference is not None
        return is_transport_safe(self.data.model, self.data.full, n, self.reference, self.settings.seed)

    @cached_property
    def _leverage(self) -> Drawing:
        """Q by curvature at θ̂."""
        assert self.reference is not None
        found, strata = find_leverage(self.data.model, self.data.full, self.reference), find_strata(self.data.full)
        return found if strata is None else stratify(strata, found.size)

    @cached_property
    def _remainders(self) -> Remainders:
        """Sums over all rows within the posterior's reach."""
        assert self.reference is not None
        return sum_remainders(self.data.model, self.data.full, self.reference, self.settings.seed)

    @cached_property
    def _influence(self) -> Drawing:
        """Q by what rows add beyond second order."""
        assert self.reference is not None
        data, strata = self.data, find_strata(self.data.full)
        by_direction = strata is None and not data.model.in_python
        found = find_influence(data.model, data.full, self.reference, self.settings.seed, strata=by_direction)
        return found if strata is None else stratify(strata, found.size)

    @cached_property
    def _pool(self) -> Pool:
        """Rows that stand for all rows."""
        assert self.reference is not None
        data, seed = self.data, self.settings.seed
        return gather_pool(data.model, data.full, self.reference, self._influence, seed)


def prefers_second_order(data: Data, settings: Settings) -> bool:
    """Return whether rows are expanded to second order, if nothing speaks against transport either."""
    options, model = settings.calibration, data.model
    if options is None or data.ordered or model.in_python:
        return False
    return takes_second_order(options.transport, model.dimension, informed=settings.summary is not None)
