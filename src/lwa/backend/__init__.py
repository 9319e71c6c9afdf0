"""How arrays are compiled and drawn: XLA, Numba, random keys, and what this machine is like."""
