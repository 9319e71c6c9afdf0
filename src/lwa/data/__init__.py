"""The data of one run: rows, the units that a subset is made of, and the model bound to both."""
