"""The example of thousands of chains, with some dozens."""

import sys

import many_chains
import pytest


@pytest.mark.slow
def test_it_prints_what_the_page_shows(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["many_chains.py", "--rows", "5000", "--chains", "80"])
    many_chains.main()
    told = capsys.readouterr().out
    assert "Of 80 chains x 20 draws, summarised while they were made" in told
    assert "nested_r_hat" in told
    assert told.splitlines()[-1].startswith(("pass", "warn"))
