"""Flight delays: which airports make flights late? 3,000,000 flights, 229 origins, one of them with a single flight.

Run it from the repository: `python examples/flights.py`. The data (US domestic flights of 2001) are in the npm package
vega-datasets, 11 MB; they are got once. What it prints and writes is in docs/flights.md.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from fetching import member_of_npm_package

import lwa

FORMULA = "(delay > 15) ~ distance + origin"
PRIOR_SD = 2.5


def fit_command(table: Path, out: Path, *options: str) -> list[str]:
    """What one would type: from the table to a certified run and its page."""
    return [
        "lwa", "fit", FORMULA, str(table), "--family", "bernoulli", "--subset-size", "1000", "--budget", "60s",
        "--seed", "1", "--out", str(out), "--overwrite", *options,
    ]  # fmt: skip


def watched(command: list[str]) -> tuple[float, float]:
    """Seconds that a command takes and the most memory that is its own, in MiB; not a number where nobody tells."""
    began, most = time.monotonic(), float("nan")
    run = subprocess.Popen([sys.executable, "-m", "lwa", *command[1:]], stdout=subprocess.DEVNULL)
    while run.poll() is None:
        try:
            told = Path(f"/proc/{run.pid}/status").read_text()
            own = int(told.split("RssAnon:")[1].split()[0]) / 1024
            most = own if np.isnan(most) else max(most, own)
        except (OSError, IndexError):
            pass  # another system, or it has just ended
        time.sleep(0.05)
    if run.returncode not in (0, 1):  # 1: the certificate condemns, which is told below
        raise SystemExit(run.returncode)
    return time.monotonic() - began, most


def cells(table: pd.DataFrame) -> pd.DataFrame:
    """Late flights and all flights of each origin and distance: the likelihood of all rows needs no more."""
    late = (table["delay"] > 15).astype(np.int64)
    return late.groupby([table["origin"], table["distance"]]).agg(["sum", "size"]).reset_index()


def full_posterior(counts: pd.DataFrame, draws: int, seed: int = 2) -> pd.DataFrame:
    """Mean and sd of every coefficient under the posterior of all rows, by NumPyro's NUTS on binomial counts.

    Nothing of lwa is in it: the same priors, written down once more.
    """
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rows, late = counts["size"].to_numpy(np.float64), counts["sum"].to_numpy(np.float64)
    origin, levels = pd.factorize(counts["origin"], sort=True)
    distance = counts["distance"].to_numpy(np.float64)
    mean = rows @ distance / rows.sum()
    sd = np.sqrt(rows @ (distance - mean) ** 2 / rows.sum())
    rate = late.sum() / rows.sum()

    def model() -> None:
        # Centred columns; the last coefficients are of the levels but the first, as lwa has them.
        middle = numpyro.sample("middle", dist.Normal(np.log(rate / (1 - rate)), PRIOR_SD))
        slope = numpyro.sample("slope", dist.Normal(0, PRIOR_SD))  # a distance of one sd
        level = numpyro.sample("level", dist.Normal(0, PRIOR_SD).expand([len(levels) - 1]).to_event(1))
        padded = jnp.concatenate([jnp.zeros(1), level])
        eta = slope * (distance - mean) / sd + padded[origin]
        intercept = numpyro.deterministic("intercept", middle - rows @ (padded[origin]) / rows.sum())
        numpyro.sample("late", dist.Binomial(rows, logits=intercept + eta), obs=late)

    with jax.enable_x64(True):
        mcmc = numpyro.infer.MCMC(
            numpyro.infer.NUTS(model, dense_mass=True, target_accept_prob=0.7),
            num_warmup=1000, num_samples=draws, num_chains=4, chain_method="sequential", progress_bar=False,
        )  # fmt: skip
        mcmc.run(jax.random.key(seed))
        found = {name: np.asarray(values) for name, values in mcmc.get_samples().items()}
    slope = found["slope"] / sd
    all_draws = np.column_stack([found["intercept"] - slope * mean, slope, found["level"]])
    names = ["Intercept", "distance", *(f"origin[T.{level}]" for level in levels[1:])]
    return pd.DataFrame({"full_mean": all_draws.mean(0), "full_sd": all_draws.std(0)}, index=names)


def compared(fit: lwa.Result, full: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """lwa's means and sds beside those of all rows, and how many flights each origin has."""
    draws = fit.posterior["beta"].reshape(-1, len(full))
    found = pd.DataFrame({"mean": draws.mean(0), "sd": draws.std(0)}, index=fit.coords["coefficient"]).join(full)
    found["shift"] = (found["mean"] - found["full_mean"]) / found["full_sd"]
    found["sd_ratio"] = found["sd"] / found["full_sd"]
    flights = table["origin"].value_counts()
    found["flights"] = [
        flights.get(name.removeprefix("origin[T.").removesuffix("]"), len(table)) for name in found.index
    ]
    return found


def figure(found: pd.DataFrame, path: Path) -> None:
    """Log odds of every origin by the number of its flights, and how far means and sds are from those of all rows."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    origins = found[found.index.str.startswith("origin")]
    labels = origins.index.str.removeprefix("origin[T.").str.removesuffix("]")
    drawn, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    left.errorbar(origins["flights"], origins["mean"], 2 * origins["sd"], fmt=".", ms=4, lw=0.8, color="tab:blue")
    for name, flights, mean in zip(labels, origins["flights"], origins["mean"], strict=True):
        if flights < 30 or mean < -1:
            left.annotate(name, (flights, mean), (4, 3), textcoords="offset points", fontsize=7)
    left.axhline(0, lw=0.6, color="grey")
    left.set(xscale="log", xlabel="flights of the origin", ylabel="log odds of being late, against ABE")
    left.set_title("Posterior mean ± 2 sd of 228 origins", fontsize=10)
    right.plot(found["flights"], found["shift"], ".", ms=5, label="(mean - mean of all rows) / sd")
    right.plot(found["flights"], found["sd_ratio"] - 1, "x", ms=4, label="sd / sd of all rows - 1")
    right.axhline(0, lw=0.6, color="grey")
    right.set(xscale="log", ylim=(-0.12, 0.12), xlabel="flights of the origin")
    right.set_title("n = 1000 of 3,000,000 rows against NUTS on all of them", fontsize=10)
    right.legend(fontsize=8)
    drawn.savefig(path, dpi=120)
    plt.close(drawn)


def main() -> None:
    """Get, fit by the command line, and compare with the posterior of all rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/flights"), help="folder of the run, page and figure")
    parser.add_argument("--figure", type=Path, help="where to write the figure, if not there")
    parser.add_argument("--reference-draws", type=int, default=5000, help="of NUTS, a chain")
    chosen = parser.parse_args()
    source = member_of_npm_package("vega-datasets@3.2.1", "data/flights-3m.parquet")
    command = fit_command(source, chosen.out)
    print("Running:", " ".join(f"'{word}'" if " " in word else word for word in command), flush=True)
    seconds, memory = watched(command)
    fit = lwa.load(chosen.out)
    told = fit.attributes
    print(f"\n{seconds:.0f} s from the Parquet file to the page, {memory:,.0f} MiB of memory of its own at the most.")
    print(
        f"{told['sampling_seconds']:.0f} s of it tune and sampling: {told['moves']:,} moves of 4 chains, "
        f"{len(fit.coords['coefficient'])} coefficients, {told['subset_size']:,} of {told['rows']:,} rows a subset."
    )
    print(f"Certificate: {fit.certificate.verdict}")
    table = pd.read_parquet(source, columns=["delay", "distance", "origin"])
    began = time.monotonic()
    counts = cells(table)
    print(f"\nThe posterior of all rows, by NUTS on {len(counts):,} cells of origin and distance:", flush=True)
    found = compared(fit, full_posterior(counts, chosen.reference_draws), table)
    print(f"{time.monotonic() - began:.0f} s.")
    figure(found, chosen.figure or chosen.out / "flights.png")
    print(found.sort_values("flights").round(3).iloc[[*range(12), *range(-12, 0)]].to_string())
    print(f"|mean - mean of all rows| / sd at most {found['shift'].abs().max():.3f} ({found['shift'].abs().idxmax()}),")
    print(f"sds {found['sd_ratio'].min():.3f} to {found['sd_ratio'].max():.3f} times those of all rows.")


if __name__ == "__main__":
    try:
        main()
    except lwa.LwaError as error:
        raise SystemExit(str(error)) from None
