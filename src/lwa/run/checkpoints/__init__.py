"""Runs that survive: draws streamed to disk, the state of all chains every few seconds, and how to go on from there."""
