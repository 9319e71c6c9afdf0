"""Y: the N rows of data, wherever they are kept."""

from lwa.rows.accept import as_rows
from lwa.rows.source import Batch, Rows
from lwa.rows.survey import Survey, survey

__all__ = ["Batch", "Rows", "Survey", "as_rows", "survey"]
