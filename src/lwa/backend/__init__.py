"""What runs the numbers: XLA, Numba, random streams, and what this machine is like."""
