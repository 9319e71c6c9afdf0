"""A run on disk: saved once it is over, or kept while it goes on."""

from lwa.storage.run_folder import kept_in, read_run, require_free, write_run

__all__ = ["kept_in", "read_run", "require_free", "write_run"]
