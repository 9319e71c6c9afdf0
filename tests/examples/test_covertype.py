"""The example on made-up rows with the same columns: tidy table, fit, comparison, picture."""

import covertype
import numpy as np
import pandas as pd
import pytest

N = 4000


@pytest.fixture(scope="module")
def table():
    """A few soils and areas, of a forest that answers to elevation; one soil is rare."""
    rng = np.random.default_rng(0)
    raw = pd.DataFrame({theirs: rng.integers(-100, 3000, N).astype(np.int16) for theirs in covertype.MEASURED.values()})
    soil = rng.choice([1, 7, 12, 40], N, p=[0.4, 0.005, 0.3, 0.295])
    area = rng.integers(1, 5, N)
    raw = raw.join(pd.DataFrame({f"Wilderness_Area{i}": (area == i).astype(np.int16) for i in range(1, 5)}))
    raw = raw.join(pd.DataFrame({f"Soil_Type{i}": (soil == i).astype(np.int16) for i in range(1, 41)}))
    likely = 1 / (1 + np.exp(0.001 * (raw["Elevation"] - 1500) - 0.5 * (soil == 12)))
    return raw.assign(Cover_Type=np.where(rng.random(N) < likely, 2, 5))


def test_factors_come_back_from_their_dummies(table):
    tidy = covertype.tidy(table)
    assert sorted(tidy["soil"].unique()) == ["1", "12", "40", "7"]
    assert set(tidy["area"]) == set(covertype.AREAS)
    for i, area in enumerate(covertype.AREAS, 1):
        assert ((tidy["area"] == area) == (table[f"Wilderness_Area{i}"] == 1)).all()
    assert (tidy["lodgepole"] == (table["Cover_Type"] == 2)).all()
    assert (tidy["elevation"] == table["Elevation"]).all()


def test_newton_has_the_coefficients_of_the_formula(table):
    full, log_odds = covertype.laplace(covertype.tidy(table))
    assert len(log_odds) == N
    assert [name for name in full.index if name.startswith("soil")] == ["soil[T.12]", "soil[T.40]", "soil[T.7]"]
    spread = covertype.tidy(table)["elevation"].std()
    for name, truth in {"scale(elevation)": -0.001 * spread, "soil[T.12]": 0.5, "scale(slope)": 0.0}.items():
        assert abs(full["mode"][name] - truth) < 4 * full["laplace_sd"][name]


def test_quadrature_finds_the_mode_of_a_common_soil(table):
    """Whose posterior is Gaussian: mean and sd, given the others, are mode and what curvature says."""
    tidy = covertype.tidy(table)
    full, log_odds = covertype.laplace(tidy)
    mode, sd = full.loc["soil[T.12]"]
    mean, narrower = covertype.given_others(tidy, "12", mode, sd, log_odds)
    assert abs(mean - mode) < 0.05 * sd
    assert 0.5 * sd < narrower < sd


@pytest.mark.slow
def test_lwa_and_newton_on_all_rows_agree(table, tmp_path):
    tidy = covertype.tidy(table)
    fit = covertype.fitted(tidy, seed=1, subset_size=1000, draws=500, tune=300, progress=False)
    found = covertype.compared(fit, tidy)
    assert fit.certificate.outcome != "fail"
    assert found["rows"]["soil[T.7]"] == (tidy["soil"] == "7").sum()
    assert found["rows"]["scale(slope)"] == N
    # Mean and mode differ where a level is rare; elsewhere by the Monte Carlo error of the draws, four of them.
    common = found[found["rows"] > 500]
    assert common["shift"].abs().max() < 0.05 + 4 / np.sqrt(fit.certificate.effective_draws)
    covertype.figure(found, tmp_path / "covertype.png")
    assert (tmp_path / "covertype.png").read_bytes().startswith(b"\x89PNG")
