"""Files on disk: atomic writes, locks, caches, and the folder of a run with its draws and its states."""
