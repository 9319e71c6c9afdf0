"""What tests of kept runs share."""

from dataclasses import replace

import pytest

from lwa.run.loop import BlockLength


@pytest.fixture(autouse=True)
def even_blocks(monkeypatch):
    """Blocks of 200 moves from the second on, however fast the machine is: how many there are is known."""
    monkeypatch.setattr(BlockLength, "after", lambda self, took, moves: replace(self, moves=200))
