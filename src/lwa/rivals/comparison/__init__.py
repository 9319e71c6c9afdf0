"""Several methods on one model and data set, under one budget: one table, one figure."""

from lwa.rivals.comparison.methods import Lwa
from lwa.rivals.comparison.table import Comparison, Line

__all__ = ["Comparison", "Line", "Lwa"]
