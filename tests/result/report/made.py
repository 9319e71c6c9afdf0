"""Runs that were never run: draws by NumPy, with the attributes that a report reads."""

from html.parser import HTMLParser

import numpy as np

import lwa
from lwa.diagnostics.certificate import ANOTHER, Certificate

VOID = {"meta", "link", "br"}

SETTINGS = {
    "subset_size": 100,
    "target": "powered",
    "draws": 1000,
    "tune": 1000,
    "chains": 4,
    "thinning": None,
    "seed": 7,
    "budget": "Budget(seconds=inf, rows=inf)",
    "subset_move": "Swap(k=1, every=1)",
    "subset_weight": "Gaussian()",
    "kernel": "RandomWalk(target_accept=0.35, scale=1.0)",
    "refresh_steps": 1,
}


def certificate(shift=0.0, error=0.01, d=2, names=None):
    """One that passes where the shift is none, and fails where it is large; with a large error it cannot tell."""
    zero, bar, tail = np.zeros(d), np.full(d, error), min(error, 0.01)
    return Certificate(
        names=names or [f"beta[{i}]" for i in range(d)], mean=zero, sd=zero + 1.0,
        shift=zero + shift, shift_error=bar, log_ratio=zero, log_ratio_error=bar, skewness=zero, skewness_error=bar,
        outside=np.full((d, 2), 0.05), outside_error=np.full((d, 2), tail), overall_shift=abs(shift),
        overall_shift_error=error, log_widths=zero, log_widths_error=bar, by_chance=np.full((d, 5), 0.9 * tail),
        worst_by_chance=np.full(d + 1, 0.9 * error), moved=np.zeros((d, 5)),
        moved_error=np.full((d, 5), error), total_variation=0.01, total_variation_error=0.01, r_squared=1.0,
        effective_draws=3000.0, lacking_draws=max(1.0, error / 0.1), lacking_points=1.0, chains=4, draws=1000,
        points=300, rows=10_000, read=0, made_by=ANOTHER,
    )  # fmt: skip


def fit(posterior=None, *, draws=1000, chains=4, dims=None, coords=None, certified=None, seed=0, **attributes):
    """A run of `lwa.sample`, as `lwa.load` gives it; of two coefficients and a scale unless told otherwise."""
    rng = np.random.default_rng(seed)
    if posterior is None:
        posterior = {
            "beta": rng.normal([1.0, -20.0], [0.1, 2.0], (chains, draws, 2)),
            "sigma": rng.gamma(9.0, 0.1, (chains, draws)),
        }
    shape = next(iter(posterior.values())).shape[:2]
    told = {
        "inference_library": "lwa",
        "inference_library_version": lwa.__version__,
        "versions": {"jax": "1", "python": "3"},
        "seed": 7,
        "target": "powered",
        "exact": False,
        "subset_size": 100,
        "rows": 10_000,
        "units": "rows",
        "units_in_all": 10_000,
        "fingerprint": "00ff",
        "epsilon": 0.05,
        "thinning": 2,
        "informed": True,
        "transport": False,
        "random_subset_distance": 0.16,
        "subset_refresh_rate": 0.25,
        "subset_renewal_moves": 400.0,
        "kernel": "adaptive random walk, step size 0.5",
        "moves": 3000,
        "tune_moves": 1000,
        "rows_read": 1_200_000,
        "seconds": 2.5,
        "sampling_seconds": 1.5,
        "stopped": "",
        "warnings": [],
        "settings": SETTINGS,
    } | attributes
    if certified is not None:
        told["certificate"] = certified.as_dict()
    stats = {
        "lp": rng.normal(size=shape),
        "acceptance_rate": np.full(shape, 0.4),
        "subset_accepted": np.full(shape, 0.25),
        "subset_distance": rng.gamma(4.0, 0.01, shape),
        "n_rows_read": np.full(shape, 200),
    }
    return lwa.Result(posterior, stats, told, dims or {}, coords or {})


def repeated(text, model, data):
    """The run that the call of a report makes."""
    scope = {"model": model, "data": data}
    exec(text.replace("\n)", "\n    progress=False,\n)"), scope)
    return scope["fit"]


class Page(HTMLParser):
    """A page as it is read: elements, words, and whether every tag is closed where it should be."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.words, self.by_id, self.faults = [], [], [], {}, []
        self.feed(text)
        self.close()
        if self.open:
            self.faults.append(f"never closed: {self.open}")

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        inside = [name for name, _ in self.open]
        self.elements.append((tag, attributes, inside))
        if tag not in VOID:
            self.open.append((tag, attributes.get("id")))

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            self.faults.append(f"</{tag}> closes {self.open[-1:]}")
        else:
            self.open.pop()

    def handle_data(self, data):
        if any(name == "style" for name, _ in self.open):
            return
        self.words.append(data)
        for _, name in self.open:
            if name:
                self.by_id.setdefault(name, []).append(data)

    @property
    def text(self):
        return " ".join(self.words)

    def of(self, name):
        """The words of an element by its id."""
        return "".join(self.by_id.get(name, []))

    def having(self, tag, **wanted):
        """The attributes of elements of a kind."""
        return [
            attributes
            for name, attributes, _ in self.elements
            if name == tag and all(attributes.get(key.rstrip("_")) == value for key, value in wanted.items())
        ]


class Cells(HTMLParser):
    """The words of every table cell, row by row, by the id of the section that the table is in."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.section, self.rows, self.cell = "", {}, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag == "section":
            self.section = dict(attributes).get("id", "")
        elif tag == "tr":
            self.rows.setdefault(self.section, []).append([])
        elif tag in ("td", "th"):
            self.cell = []

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.rows[self.section][-1].append("".join(self.cell))
            self.cell = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell.append(data)
