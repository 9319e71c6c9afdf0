"""A device for tests: everything that runs on a GPU, on the CPU, where programs for registers are interpreted."""

import pytest

from lwa.backend import xla


@pytest.fixture
def device(monkeypatch):
    """As if there were an accelerator. Which compiler options the CPU understands is found before that."""
    xla.find_cpu_options()
    monkeypatch.setattr(xla, "accelerated", lambda: True)
