"""The example on made-up flights: its command, the posterior by counts, the comparison and the picture."""

import flights
import numpy as np
import pandas as pd
import pytest

import lwa
from lwa.cli.app import main

N = 6000


@pytest.fixture(scope="module")
def table():
    """Twelve origins, one with two flights."""
    rng = np.random.default_rng(1)
    origin = rng.choice([f"A{i:02d}" for i in range(11)], N)
    origin[:2] = "ZZZ"
    distance = rng.choice([100, 300, 800, 2000], N)
    late = rng.random(N) < 1 / (1 + np.exp(1.0 - 0.0003 * distance - 0.5 * (origin == "A03")))
    return pd.DataFrame({"delay": np.where(late, 30, -5), "distance": distance, "origin": origin})


def test_cells_keep_all_flights(table):
    counts = flights.cells(table)
    assert counts["size"].sum() == N
    assert counts["sum"].sum() == (table["delay"] > 15).sum()
    assert set(counts["origin"]) == set(table["origin"])


@pytest.mark.slow
def test_the_command_agrees_with_nuts_on_counts(table, tmp_path, monkeypatch, capsys):
    """Means to 0.05 sd and what both samplers may err; sds to 5 %."""
    monkeypatch.setenv("LWA_CACHE", str(tmp_path / "cache"))
    source, out = tmp_path / "flights.parquet", tmp_path / "run"
    table.to_parquet(source)
    command = flights.fit_command(source, out)
    command[command.index("60s")] = "5s"
    monkeypatch.setattr("sys.argv", command)
    with pytest.raises(SystemExit, check=lambda left: left.code in (0, None)):
        main()
    fit = lwa.load(out)
    assert fit.certificate.passed
    assert (out / "report.html").exists()
    found = flights.compared(fit, flights.full_posterior(flights.cells(table), 2500), table)
    assert found["flights"]["origin[T.ZZZ]"] == 2
    assert len(found) == 13
    # NUTS is worth some 5000 draws at the least: 0.014 sd, of which 13 coefficients see 3.5 once in 150 runs.
    assert found["shift"].abs().max() < 0.05 + 3.5 * 0.014
    assert (found["sd_ratio"] - 1).abs().max() < 0.05 + 3.5 * 0.014
    flights.figure(found, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
