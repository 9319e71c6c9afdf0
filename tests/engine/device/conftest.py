"""A device for tests: everything that runs on a GPU, on the CPU, where programs for registers are interpreted."""

import pytest

from lwa.engine.device import cohort
from lwa.run import plan as planning
from lwa.run import prepare as preparation


@pytest.fixture
def device(monkeypatch):
    """As if there were an accelerator."""
    for module in (planning, preparation, cohort):
        monkeypatch.setattr(module, "accelerated", lambda: True)
