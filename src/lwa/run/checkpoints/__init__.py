"""Checkpoints: draws streamed to disk, the state of all chains every few seconds, and how to resume from there."""
