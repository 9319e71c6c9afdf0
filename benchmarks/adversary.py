"""Attack default runs: is `lwa.sample(model, data, seed=s)` right, or does it say that it is not?

    python benchmarks/adversary.py                          # all cases, ten seeds each; more than an hour on two cores
    python benchmarks/adversary.py --cases wall student_df --seeds 2
    python benchmarks/adversary.py --references             # only the references, which are kept in .cache/adversary
    python benchmarks/adversary.py --advice                 # also do what warnings, errors and certificates advise
    python benchmarks/adversary.py --advice --add --cases arma   # again, beside the other cases on record

Each case (`adversary_cases.py`) is one data set and ten runs with default arguments, compared with a reference of known
error (`adversary_references.py`) in the model's unconstrained space. For every parameter, in sds of the reference,

    |shift of the mean| ≤ 0.1,   0.93 ≤ sd ratio ≤ 1.07,   |shift of the 2.5 % and 97.5 % quantiles| ≤ 0.15

must hold, each limit widened by 3 √(r² + e²): r is the standard error of the reference, and e that of as many
independent draws of the reference as the run's draws are worth: 1/√E for the mean, 0.71/√E for the sd of a Gaussian,
2.7/√E for its quantiles. E are the effective draws of x, (x - mean)² and 1{x < Q}, at least 400 (100 per chain), so
that a run cannot become right by mixing badly. Such a run is *right*; `right_as_drawn` counts those that are right with
e = 0 too. Otherwise a run is *refused* if lwa raised an `InputError`, *warned* if it gave a warning, and *wrong* if
not: also if there were no draws in 120 seconds, or an error of another kind. If draws are off, the certificate is asked
as well.
"""

import argparse
import json
import multiprocessing
import os
import platform
import re
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from multiprocessing.connection import wait
from pathlib import Path

import adversary_units  # noqa: F401 - registers its cases
import adversary_ways  # noqa: F401 - registers its cases
import jax
import numpy as np
from accuracy import HERE, machine
from adversary_cases import CASES
from adversary_references import TAILS, influence, reference

import lwa
from lwa.diagnostics.autocorrelation import effective_draws
from lwa.diagnostics.draws import collect_draws

CACHE = HERE.parent / ".cache" / "adversary"
LIMITS = {"mean": 0.1, "sd": 0.07, "quantiles": 0.15}
FEWEST_EFFECTIVE = 400
PATIENCE = 2  # runs of a case without draws in time, after which its other seeds are not tried
LATE = {"run": "draws", "advice": "draws", "certificate": "certificate", "remedy": "verdict"}
MOST_REMEDIES = 3  # one after the other
VERDICTS = ("right", "warned", "refused", "wrong")


def judge(draws, truth):
    """Return the worst shift, sd ratio and quantile error of draws `(chains, draws, d)`, and whether they are right."""
    flat = draws.reshape(-1, draws.shape[-1])
    off = {
        "mean": (flat.mean(0) - truth.mean) / truth.sd,
        "sd": flat.std(0) / truth.sd - 1,
        "quantiles": (np.quantile(flat, TAILS, axis=0) - truth.quantiles) / truth.sd,
    }
    own = errors_of_draws(draws, truth)
    strict, right = True, True
    for name, limit in LIMITS.items():
        far = np.abs(off[name])
        strict &= bool((far <= limit + 3 * truth.errors[name]).all())
        right &= bool((far <= limit + 3 * np.hypot(truth.errors[name], own[name])).all())
    ratio = 1 + off["sd"]
    return {
        "right": right,
        "right_as_drawn": strict,
        "shift": float(off["mean"][np.argmax(np.abs(off["mean"]))]),
        "sd_ratio": [float(ratio.min()), float(ratio.max())],
        "quantile_error": float(np.abs(off["quantiles"]).max()),
        "effective_draws": float(np.nan_to_num(effective_draws(draws), nan=0.0).min()),
        "error_of_draws": {name: float(np.max(error)) for name, error in own.items()},
    }


def errors_of_draws(draws, truth):
    """Return the standard errors, in sds, that so many effective draws of the reference would have."""
    chains, length, d = draws.shape
    parts = influence(draws.reshape(-1, d), truth.mean, truth.sd, truth.quantiles, truth.slopes)

    def worth(values):
        effective = effective_draws(values.reshape(chains, length, d))
        return np.clip(np.nan_to_num(effective, nan=0.0), FEWEST_EFFECTIVE, chains * length)

    tails = [
        np.sqrt(p * (1 - p)) * slope / np.sqrt(worth(part))
        for p, slope, part in zip(TAILS, truth.slopes, parts["quantiles"], strict=True)
    ]
    return {
        "mean": 1 / np.sqrt(worth(parts["mean"])),
        "sd": truth.spread / np.sqrt(worth(parts["sd"])),
        "quantiles": np.stack(tails),
    }


def run_once(problem, truth, seed, options):
    """Return what came of one call of `lwa.sample`, as a record for JSON, and its fit, if there is one."""
    model, data = problem.call or (problem.model, problem.data)
    began, fit, found = time.monotonic(), None, {"seed": seed}
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", lwa.LwaWarning)
        try:
            fit = lwa.sample(model, data, seed=seed, progress=False, **options)
        except lwa.InputError as error:
            said = {"text": str(error), "advice": getattr(error, "advice", {})}
            found |= {"verdict": "refused", "messages": [said]}
        except Exception as error:
            found |= {"verdict": "wrong", "messages": [], "why": f"{type(error).__name__}: {error}"[:2000]}
    found["seconds"] = round(time.monotonic() - began, 1)
    if fit is None:
        return found, None
    told = [one.message for one in heard if isinstance(one.message, lwa.LwaWarning)]
    found["messages"] = [{"text": str(one), "advice": getattr(one, "advice", {})} for one in told]
    found["subset_size"] = int(fit.attributes["subset_size"])
    try:
        found |= judge(collect_draws(fit.origin.model, fit), truth)
    except lwa.InputError as error:
        found |= {"right": False, "why": str(error)}
    found["verdict"] = "right" if found.pop("right") else "warned" if told else "wrong"
    return found, fit


def ask_certificate(fit):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lwa.LwaWarning)
            return fit.certify(progress=False).outcome
    except lwa.LwaError as error:
        return f"refused: {error}"


def follow_remedies(problem, truth, seed, fit):
    """Do what a certificate advises until it says PASS; return each verdict, and whether the last draws are right."""
    model, data = problem.call or (problem.model, problem.data)
    passed, steps = {}, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lwa.LwaWarning)
        certificate = fit.certify(progress=False)
        while not certificate.passed and certificate.advice and len(steps) < MOST_REMEDIES:
            advice = certificate.advice
            steps.append({"outcome": certificate.outcome, "verdict": certificate.verdict, "passed": advice})
            sampling = {name: value for name, value in advice.items() if name not in ("passes", "points")}
            if "passes" in advice:
                fit = fit.polish(advice["passes"], progress=False)
            elif sampling:
                passed |= sampling
                fit = lwa.sample(model, data, seed=seed, progress=False, **passed)
            certificate = fit.certify(points=advice.get("points"), progress=False)
    judged = judge(collect_draws(fit.origin.model, fit), truth)
    return {"steps": steps, "outcome": certificate.outcome, "verdict": certificate.verdict, "right": judged["right"]}


def kind_of(text):
    """Return a message without its numbers and names, up to the first full stop: what it is about."""
    sentence = re.split(r"(?<=[a-z)])[.:;] ", text)[0]
    return re.sub(r"[-+]?\d[\d.,eE%+-]*", "#", sentence)[:90]


def attack(case, seeds, options, send):
    """Run a case in a process of its own; `send` tells the parent what begins and what came of it."""
    send(("begin", "reference", None))
    problem = CASES[case].build(options["data_seed"])
    truth = reference(f"{case}-{options['data_seed']}", problem, CACHE)
    model = problem.model
    rows = problem.data if isinstance(problem.data, list) else [problem.data]
    size = sum(len(next(iter(part.values())) if isinstance(part, dict) else part) for part in rows)
    send(("case", None, {"parameters": model.dimension, "rows": size, "reference": truth.how | truth.worst_error()}))
    tried = set(options["tried"])
    for seed in seeds:
        send(("begin", "run", seed))
        found, fit = run_once(problem, truth, seed, {})
        if fit is not None and found["verdict"] != "right":
            send(("begin", "certificate", found))
            found["certificate"] = ask_certificate(fit)
        send(("run", seed, as_plain(found)))
        if fit is not None and options["advice"] and (seed == 1 or found.get("certificate") == "warn"):
            send(("begin", "remedy", {"seed": seed}))
            send(("remedy", seed, as_plain({"seed": seed} | follow_remedies(problem, truth, seed, fit))))
        fit = None
        for said in found["messages"] if options["advice"] else []:
            kind = kind_of(said["text"])
            if said["advice"] and kind not in tried:
                tried.add(kind)
                trial = {"kind": kind, "seed": seed, "passed": plain(said["advice"])}
                send(("begin", "advice", trial))
                send(("advice", seed, as_plain(trial | run_once(problem, truth, seed, said["advice"])[0])))
    send(("end", None, None))


def plain(value):
    """Return what JSON can hold: other objects as they print."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def as_plain(record):
    return json.loads(json.dumps(plain(record)))


def work(case, seeds, options, pipe):
    if options["cores"]:
        os.sched_setaffinity(0, options["cores"])
    try:
        attack(case, seeds, options, pipe.send)
    except Exception:
        pipe.send(("broken", None, traceback.format_exc()))


@dataclass
class Task:
    """A case that is being attacked: its process, what that last began and when, and what came of it so far."""

    case: str
    seeds: list[int]
    options: dict
    found: dict = field(default_factory=dict)
    process: multiprocessing.Process | None = None
    pipe: object = None
    doing: tuple = ("reference", None)
    since: float = 0.0
    began: float = field(default_factory=time.monotonic)

    def start(self):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe(duplex=False)
        done = {run["seed"] for run in self.runs}
        tried = [one["kind"] for one in self.found.get("advice", [])]
        left = [seed for seed in self.seeds if seed not in done]
        arguments = (self.case, left, self.options | {"tried": tried}, theirs)
        self.process = context.Process(target=work, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.doing, self.since = ("reference", None), time.monotonic()

    @property
    def runs(self):
        return self.found.setdefault("runs", [])

    def hear(self):
        """Take in a message; return whether the case is finished."""
        try:
            word, which, what = self.pipe.recv()
        except EOFError:
            word, which, what = "broken", None, "The process ended."
        if word == "begin":
            self.doing, self.since = (which, what), time.monotonic()
        elif word == "case":
            self.found |= what
        elif word == "run":
            self.runs.append(what)
        elif word in ("advice", "remedy"):
            self.found.setdefault(word, []).append(what)
        elif word == "broken" and self.doing[0] == "run":
            return self.give_up(f"the process broke: {what[-500:]}")
        elif word == "broken":
            self.found["broken"] = what
        return word in ("end", "broken")

    def is_late(self, limit):
        if self.doing[0] == "remedy":
            limit = MOST_REMEDIES * limit
        return self.doing[0] != "reference" and time.monotonic() - self.since > limit

    def give_up(self, why):
        """Record that what was begun came to nothing, and go on in a new process; return whether no seed is left."""
        self.process.kill()
        self.process.join()
        doing, what = self.doing
        if doing == "run":
            self.runs.append({"seed": what, "verdict": "wrong", "messages": [], "why": why, "late": True})
        elif doing == "certificate":
            self.runs.append(as_plain(what) | {"certificate": why})
        else:
            self.found.setdefault(doing, []).append(what | {"verdict": "wrong", "right": False, "why": why})
        if sum(run.get("late", False) for run in self.runs) >= PATIENCE:
            done = {run["seed"] for run in self.runs}
            self.runs.extend(
                {"seed": seed, "verdict": "wrong", "messages": [], "why": f"not tried: {PATIENCE} runs before: {why}"}
                for seed in self.seeds
                if seed not in done
            )
        if len(self.runs) == len(self.seeds):
            return True
        self.start()
        return False


def cores_of(jobs):
    """Return two cores for each job, so that what runs do depends on no machine's size; none if there are only two."""
    if not hasattr(os, "sched_getaffinity") or len(cores := sorted(os.sched_getaffinity(0))) <= 2:
        return [None] * jobs
    return [{cores[2 * job % len(cores)], cores[(2 * job + 1) % len(cores)]} for job in range(jobs)]


def longest_first(name):
    """Return the sort key of a case: what its runs took on record, so that no long case is left for the end."""
    record = HERE / "results" / "adversary.json"
    cases = json.loads(record.read_text())["cases"] if record.exists() else {}
    return -cases.get(name, {}).get("seconds", np.inf)


def attack_all(given, finished):
    """Attack all cases, `given.jobs` at a time; call `finished(task)` after each."""
    options = {"advice": given.advice, "data_seed": 0}
    pairs = cores_of(given.jobs)
    seeds = [] if given.references else list(range(1, given.seeds + 1))
    names = [
        (name, data_seed)
        for name in sorted(CASES, key=longest_first)
        if not given.cases or any(part in name for part in given.cases)
        for data_seed in range(given.data_seeds)
    ]
    waiting = [Task(name, seeds, options | {"data_seed": data_seed}) for name, data_seed in names]
    running = []
    while waiting or running:
        while waiting and len(running) < given.jobs:
            running.append(waiting.pop(0))
            running[-1].options["cores"] = pairs.pop()
            running[-1].began = time.monotonic()
            running[-1].start()
        ready = wait([task.pipe for task in running], timeout=1.0)
        for task in list(running):
            over = task.pipe in ready and task.hear()
            if not over and task.is_late(given.limit):
                over = task.give_up(f"no {LATE[task.doing[0]]} in {given.limit:.0f} s")
            if over:
                task.process.join()
                running.remove(task)
                pairs.append(task.options["cores"])
                task.found["seconds"] = round(time.monotonic() - task.began, 1)
                finished(task)


def summarise(cases):
    """Return counts over all runs, and what the issue asks for."""
    runs = [run for found in cases.values() for run in found["runs"]]
    count = Counter(run["verdict"] for run in runs)
    total = max(1, len(runs))
    tried = max(1, len(runs) - count["refused"])
    return {
        "runs": len(runs),
        **{verdict: count[verdict] for verdict in VERDICTS},
        "right_with_a_warning": sum(run["verdict"] == "right" and bool(run["messages"]) for run in runs),
        "right_as_drawn": sum(run.get("right_as_drawn", False) for run in runs),
        "off_as_drawn_without_warning": sum(
            not run.get("right_as_drawn", True) and not run["messages"] for run in runs
        ),
        "off_with_pass": sum(run["verdict"] != "right" and run.get("certificate") == "pass" for run in runs),
        "share_right": round(count["right"] / tried, 4),
        "share_refused": round(count["refused"] / total, 4),
    }


def requirements(summary):
    """Return each requirement in words, and whether it holds."""
    right, refused = summary["share_right"], summary["share_refused"]
    return {
        f"wrong without a warning: {summary['wrong']}, required 0": summary["wrong"] == 0,
        f"not right with a PASS: {summary['off_with_pass']}, required 0": summary["off_with_pass"] == 0,
        f"right: {right:.1%} of the runs that are not refused, required at least 90 %": right >= 0.9,
        f"refused: {refused:.1%} of the runs, required at most 10 %": refused <= 0.1,
    }


def worst_of(runs):
    """Return the worst shift, sd ratio and quantile error over the runs of a case that have draws."""
    drawn = [run for run in runs if "shift" in run]
    if not drawn:
        return None
    ratios = [ratio for run in drawn for ratio in run["sd_ratio"]]
    return {
        "shift": max((run["shift"] for run in drawn), key=abs),
        "sd_ratio": max(ratios, key=lambda ratio: abs(np.log(max(ratio, 1e-9)))),
        "quantile_error": max(run["quantile_error"] for run in drawn),
        "subset_sizes": sorted({pick(run["subset_size"] for run in drawn) for pick in (min, max)}),
    }


def cells_of(name, found):
    """Return the cells of a case's row in the table."""
    runs = found["runs"]
    count = Counter(run["verdict"] for run in runs)
    worst = worst_of(runs)
    measured = ("", "", "", "")
    if worst is not None:
        sizes = "–".join(f"{size:,}" for size in worst["subset_sizes"])
        measured = f"{worst['shift']:+.2f}", f"{worst['sd_ratio']:.2f}", f"{worst['quantile_error']:.2f}", sizes
    took = np.median([run["seconds"] for run in runs if "seconds" in run] or [np.nan])
    verdicts = " / ".join(str(count[verdict]) for verdict in VERDICTS)
    words = CASES[name].hard if name in CASES else ""
    strictly = str(sum(run.get("right_as_drawn", False) for run in runs))
    size = f"{found['parameters']}", f"{found['rows']:,}"
    return name.replace("_", " "), *size, words, verdicts, strictly, *measured, f"{took:.1f}"


COLUMNS = (
    "case", "d", "N", "what is hard", "right / warned / refused / wrong", "as drawn", "shift", "sd ratio", "quantile",
    "n", "s",
)  # fmt: skip


def table_of(cases):
    head = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    return head + [f"| {' | '.join(cells_of(name, found))} |" for name, found in cases.items() if "parameters" in found]


def kinds_of(cases):
    """Return the kinds of messages of runs, how often each came, and in how many of those runs draws were right."""
    seen, fine = Counter(), Counter()
    for found in cases.values():
        for run in found["runs"]:
            for kind in {kind_of(said["text"]) for said in run["messages"]}:
                seen[kind] += 1
                fine[kind] += run["verdict"] == "right"
    return [(kind, count, fine[kind]) for kind, count in seen.most_common()]


def advice_of(cases):
    """Return by kind of message: how often its advice was tried, and how often that made the run right."""
    tried, helped = Counter(), Counter()
    for found in cases.values():
        for one in found.get("advice", []):
            tried[one["kind"]] += 1
            helped[one["kind"]] += one["verdict"] == "right"
    return [(kind, count, helped[kind]) for kind, count in tried.most_common()]


def remedies_of(cases):
    """Return by the first remedy that a certificate named: how often it was followed, to a PASS, and to right draws."""
    followed, ended, helped = Counter(), Counter(), Counter()
    for found in cases.values():
        for one in found.get("remedy", []):
            if steps := one.get("steps"):
                kind = f"{steps[0]['outcome']}: {', '.join(steps[0]['passed'])}"
                followed[kind] += 1
                ended[kind] += one["outcome"] == "pass"
                helped[kind] += one["outcome"] == "pass" and one["right"]
    return [(kind, count, ended[kind], helped[kind]) for kind, count in followed.most_common()]


def count_certified(cases):
    """Return of how many first runs the certificate said PASS at once, and of how many it was asked."""
    asked = [one for found in cases.values() for one in found.get("remedy", []) if one["seed"] == 1]
    return sum(one.get("outcome") == "pass" and not one["steps"] for one in asked), len(asked)


PAGE = """# Right, or refused

{cases} models and data sets that were chosen to break default runs, {seeds} seeds each:
`lwa.sample(model, data, seed=s)` with no other argument. Each run is compared with a reference that uses neither lwa's
subsets nor its chains: exact draws, importance sampling or NUTS, on all rows in float64.

- *Right*: for every parameter the mean is within 0.1 sd, the ratio of sds within 0.93–1.07, and the 2.5 % and 97.5 %
  quantiles within 0.15 sd, each beyond three standard errors of the reference and of as many independent draws as the
  run's are worth (400 if they are worth less).
- *Warned*: not right, and lwa gave a warning.
- *Refused*: lwa raised an error that says what to do instead.
- *Wrong*: not right and no warning, or no draws in two minutes.

Of {runs} runs {right} were right, {warned} warned, {refused} refused and {wrong} wrong. Of those that were right,
{right_with_a_warning} came with a warning, and {right_as_drawn} need no allowance for the Monte Carlo error of draws;
without it, {off_as_drawn_without_warning} runs would be wrong without a warning.
`fit.certify()` said PASS of {off_with_pass} runs that were not right.

{requirements}

*As drawn* counts runs that are right without that allowance. Shift, sd ratio and quantile error are the worst of all
runs and parameters, in sds of the reference. n is the subset size that lwa chose, s the median of seconds per run.

{table}
{messages}
Measured on {date} by `{command}` on {machine}.
All numbers, with the errors of the references: `benchmarks/results/adversary.json`.
"""


def write_page(path, record):
    """Write the page of results."""
    cases, summary = record["cases"], record["summary"]
    holds = [f"- {words}: {'holds' if kept else '**does not hold**'}." for words, kept in requirements(summary).items()]
    messages = []
    if kinds := kinds_of(cases):
        messages += ["", "## What lwa said", "", "| message | runs | of these right |", "|---|---|---|"]
        messages += [f"| {kind} | {count} | {fine} |" for kind, count, fine in kinds]
    if tried := advice_of(cases):
        messages += ["", "## Does the advice help?", "", "The arguments that a message names, in a second run:", ""]
        messages += ["| message | tried | right |", "|---|---|---|"]
        messages += [f"| {kind} | {count} | {helped} |" for kind, count, helped in tried]
    if followed := remedies_of(cases):
        passed, asked = count_certified(cases)
        told = (
            f"{passed} of {asked} first runs, one per case, had a PASS at once. What the certificate advised otherwise:"
        )
        messages += ["", "## Does the remedy of a certificate help?", "", told, ""]
        messages += ["| verdict and remedy | followed | PASS | right too |", "|---|---|---|---|"]
        messages += [f"| {kind} | {count} | {ended} | {helped} |" for kind, count, ended, helped in followed]
    filled = PAGE.format(
        **summary | {name: record[name] for name in ("date", "command", "machine")},
        cases=len(cases), seeds=max(len(found["runs"]) for found in cases.values()),
        requirements="\n".join(holds), table="\n".join(table_of(cases)), messages="\n".join([*messages, ""]),
    )  # fmt: skip
    path.write_text(filled, encoding="utf-8")


def line_of(task):
    """Return one line on a finished case, and one for each kind of failure."""
    found = task.found
    if "broken" in found:
        return f"{task.case}: BROKEN\n{found['broken']}"
    made = found["reference"]
    errors = " ".join(f"{name} {made[name]:.3f}" for name in LIMITS)
    extra = f", k {made['k']:.2f}" if "k" in made else ""
    line = f"{task.case}: {made['kind']} ({errors}{extra}); "
    if not found["runs"]:
        return line + f"{found['seconds']:.0f} s"
    line += " | ".join(cells_of(task.case, found)[4:])
    for run in found["runs"]:
        if run["verdict"] != "right":
            said = run.get("why") or " // ".join(said["text"] for said in run["messages"]) or "nothing said"
            asked = run.get("certificate", "not asked")
            line += f"\n    seed {run['seed']} {run['verdict']}, certificate {asked}: {said[:300]}"
    for one in found.get("remedy", []):
        if one.get("steps") or one.get("why"):
            told = "; ".join(f"{step['outcome']} {step['passed']}" for step in one.get("steps", []))
            end = f"{one.get('outcome', one.get('why'))}, {'right' if one['right'] else 'NOT RIGHT'}"
            line += f"\n    seed {one['seed']}: {told}, then {end}"
            line += "" if one.get("outcome") == "pass" else f": {one.get('verdict')}"
        elif one["outcome"] != "pass":
            line += f"\n    seed {one['seed']}: certificate {one['outcome']}, no remedy: {one['verdict']}"
    return line + f"\n    {found['seconds']:.0f} s"


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", help="parts of names; all cases if not given")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data-seeds", type=int, default=1, help="data sets per case")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a run")
    parser.add_argument("--references", action="store_true", help="only compute references")
    parser.add_argument("--advice", action="store_true", help="also do what messages and certificates advise")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "adversary.json")
    parser.add_argument("--add", action="store_true", help="keep the other cases on record")
    parser.add_argument("--page", type=Path, help="write the page of results there")
    parser.add_argument("--page-only", action="store_true", help="write the page from the results on record")
    return parser.parse_args()


def machine_in_words():
    cores = os.cpu_count()
    return f"{ {1: 'one', 2: 'two', 4: 'four'}.get(cores, cores) } {platform.machine().replace('_', '-')} cores"


def join_machines(cases):
    """Return the machines of all cases, in words."""
    return " and ".join(dict.fromkeys(found["machine"] for found in cases.values()))


def command_of(given):
    parts = [f"--{name} {getattr(given, name)}" for name in ("seeds",) if getattr(given, name) != 10]
    parts += ["--advice"] if given.advice else []
    return " ".join(["python benchmarks/adversary.py", *parts])


def main():
    given = read_arguments()
    if given.page_only:
        write_page(given.page or HERE.parent / "docs" / "adversary.md", json.loads(given.out.read_text()))
        return
    cases = json.loads(given.out.read_text())["cases"] if given.add and given.out.exists() else {}

    def finished(task):
        print(line_of(task), flush=True)
        seed = task.options["data_seed"]
        if "broken" not in task.found and task.runs:
            cases[task.case if not seed else f"{task.case}_{seed}"] = task.found
            ordered = {name: cases[name] for name in sorted(cases, key=lambda name: order.get(name, len(order)))}
            task.found["machine"] = f"{machine_in_words()} (JAX {jax.__version__})"
            made = {"date": date.today().isoformat(), **machine(), "machine": join_machines(ordered)}
            record = made | {"command": command_of(given), "summary": summarise(ordered), "cases": ordered}
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(record, indent=1) + "\n")

    order = {name: place for place, name in enumerate(CASES)}
    attack_all(given, finished)
    if not cases:
        return
    if given.page:
        write_page(given.page, json.loads(given.out.read_text()))
    summary = summarise(cases)
    print("\n" + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in summary.items()))
    for kind, count, helped in advice_of(cases):
        print(f"advice of “{kind}”: tried {count}, right {helped}")
    for kind, count, ended, helped in remedies_of(cases):
        print(f"certificate {kind}: followed {count}, pass {ended}, right too {helped}")
    for words, holds in requirements(summary).items():
        print(f"{'holds' if holds else 'DOES NOT HOLD'}: {words}")


if __name__ == "__main__":
    main()
