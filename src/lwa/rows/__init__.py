"""Y: the N rows of data, wherever they are kept."""

from lwa.rows.memory import as_rows
from lwa.rows.passes import Survey, survey
from lwa.rows.protocol import Batch, Rows
from lwa.rows.store.conversion import convert, write_store
from lwa.rows.store.store import StoreRows, open_store

__all__ = ["Batch", "Rows", "StoreRows", "Survey", "as_rows", "convert", "open_store", "survey", "write_store"]
