"""What tests of commands share."""

import sys

import pytest

from lwa.backend.xla import make_room_for_programs
from lwa.cli.app import main


@pytest.fixture(autouse=True, scope="module")
def room_for_programs():
    """Forget compiled programs between files: what runs the kernels by themselves, as tests do, does not."""
    make_room_for_programs()


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command in this process; returns its exit code, what it printed and what it complained of."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["lwa", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return left.value.code or 0, printed.out, printed.err

    return call
