"""Writes docs/certificate.md from the results on record of three benchmarks.

python benchmarks/anybody.py             # ten samplers on five models
python benchmarks/certificate_rates.py   # exact draws, and draws with planted errors, 100 seeds each
python benchmarks/certificate.py         # seconds
python benchmarks/certificate_page.py
"""

import json
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"
VERDICTS = ("pass", "warn", "fail")
KINDS = {
    "exact, pass": ("Exact draws of near-Gaussian and skewed posteriors", "PASS in at least 95 %"),
    "exact, no fail": ("Exact draws of other posteriors", "FAIL in at most 2 %"),
    "wrong": ("Draws with a planted error", "PASS in at most 5 %"),
    "condemned": ("A sampler that is wrong here", "FAIL in at least 95 %"),
}

PAGE = """# The certificate of anybody's draws

`lwa.certify(model, data, draws)` says how far draws are from the posterior of all rows, whatever made them. It compares
means, sds, skewness and 90 % intervals, and needs only the model, the rows and the draws
([how](design/certificate.md)).

## One line each

| draws from | verdict |
|---|---|
| PyMC: `idata = pm.sample()` | `lwa.certify(lwa.from_pymc(model), data, idata)` |
| PyMC's ADVI: `approx = pm.fit(method="advi")` | `lwa.certify(lwa.from_pymc(model), data, approx.sample(4000))` |
| NumPyro: `mcmc.run(...)`, NUTS or HMCECS | `lwa.certify(lwa.from_numpyro(model, data), data, mcmc)` |
| NumPyro's SVI or Laplace: `guide.sample_posterior(...)` | `lwa.certify(lwa.from_numpyro(model, data), data, draws)` |
| BlackJAX, Pathfinder, your code: arrays `(chains, draws, *shape)` | `lwa.certify(model, data, {{"beta": array}})` |
| ArviZ, from a file | `lwa.certify(model, data, az.from_netcdf("run.nc"))` |
| `lwa.sample`, `lwa.rivals.sample` | `fit.certify()` |

## How to read it

The first line is the verdict, then comes what it means, then the table.

- **PASS**: of these draws, each mean, sd, skewness and 90 % interval is within tolerance, and so is its bar: means
  to 0.1 sd, sds to a factor of 1.07, skewness to 0.25, and 3 to 7 % of the posterior beyond each end of the interval.
  Their Monte Carlo error must be small too, some 700 effective draws.
- **WARN**: the draws may be right or wrong; it says what to do to find out.
- **FAIL**: something is out of tolerance beyond chance, by the size and bar that it states.

A mean that is off by 0.09 sd moves a 90 % interval, which is 3.3 sds long, by 3 % of its length. A PASS is about the
computation: a model that does not fit its data has exact draws too. Nor does it see a mode that no draw has visited.

## Side by side

Five models, each written in PyMC and in NumPyro, {chains} chains of {draws} draws, every sampler with its own defaults.
Shift, sd ratio, skewness and tail are the worst of all parameters; *tail* is how far the share of the posterior beyond
an end of the 90 % interval is from 5 %.

{side_by_side}

Measured on {date} by `python benchmarks/anybody.py` on {machine}. HMCECS needs a NumPyro model that
subsamples, so only the two regressions have it.

## How often it is right

{seeds} seeds each, {rate_chains} chains of {rate_draws} draws, exact unless an error is planted.

{rates}

No PASS stated a bar above its tolerance: {loose} of {certificates} certificates did.

Measured on {rate_date} by `python benchmarks/certificate_rates.py` on {rate_machine}.

## What it costs

Logistic regression, d = 10, rows in mapped files, {cost_chains} chains of {cost_draws} draws, 300 gradients. Seconds of
`fit.certify()` and of `lwa.certify(model, data, draws)`, medians after the first call, which also compiles.

| N | `fit.certify()` | first call | rows read at each draw | anybody's draws | all rows at each draw |
|---|---|---|---|---|---|
{costs}

Measured on {cost_date} by `python benchmarks/certificate.py` on {cost_machine}.
"""


def load(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def show_methods(model, names):
    """Return a model's heading and its table of verdicts."""
    lines = [f"### {model['words'][0].upper()}{model['words'][1:]}", ""]
    lines += ["| draws from | verdict | shift / sd | sd ratio | skewness | tail | effective draws |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for method, found in model["methods"].items():
        if found["outcome"] == "refused":
            lines.append(f"| {names[method]} | refused: {found['words'].split(': ')[0]} | | | | | |")
            continue
        low, high = found["sd_ratio"]
        lines.append(
            f"| {names[method]} | {found['outcome'].upper()} | {found['shift']:.2f} | {low:.2f}–{high:.2f} | "
            f"{found['skewness']:.2f} | {100 * found['tail']:.1f} % | {found['draws']:,.0f} |"
        )
    return "\n".join(lines)


def show_rates(cases):
    """Return one table per kind of case."""
    parts = []
    for kind, (words, wanted) in KINDS.items():
        lines = [f"**{words}**: {wanted}.", "", "| draws | PASS | WARN | FAIL |", "|---|---|---|---|"]
        for found in cases.values():
            if found["kind"] == kind:
                lines.append(f"| {found['what']} | " + " | ".join(f"{found[one]:.0%}" for one in VERDICTS) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def show_cost(one):
    on_all = f"{one['all_rows_seconds']:.1f}" if "all_rows_seconds" in one else ""
    return (
        f"| {one['rows']:,} | {one['known_seconds']:.2f} | {one['first_seconds']:.1f} | {one['read']:,} | "
        f"{one['unknown_seconds']:.2f} | {on_all} |"
    )


def main():
    anybody, rates, cost = load("anybody"), load("certificate_rates"), load("certificate")
    cases = rates["cases"]
    page = PAGE.format(
        chains=anybody["chains"], draws=anybody["draws"], date=anybody["date"], machine=anybody["machine"],
        side_by_side="\n\n".join(show_methods(model, anybody["names"]) for model in anybody["models"].values()),
        seeds=rates["seeds"], rate_chains=rates["chains"], rate_draws=rates["draws"], rates=show_rates(cases),
        loose=sum(found["loose_passes"] for found in cases.values()), certificates=rates["seeds"] * len(cases),
        rate_date=rates["date"], rate_machine=rates["machine"], cost_chains=cost["chains"], cost_draws=cost["draws"],
        costs="\n".join(map(show_cost, cost["sizes"])), cost_date=cost["date"], cost_machine=cost["machine"],
    )  # fmt: skip
    (HERE.parent / "docs" / "certificate.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
