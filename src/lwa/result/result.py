"""What a run returns: draws, what happened while they were made, and how to repeat the run."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.errors import InputError, RunFolderError
from lwa.storage.run_folder import find_kept_files, read_run, write_run
from lwa.user.validate import is_whole, require_whole

if TYPE_CHECKING:
    import xarray

    from lwa.data.data import Data
    from lwa.diagnostics.certificate import Certificate, MadeBy
    from lwa.diagnostics.running import RunningSummary
    from lwa.diagnostics.some_rows import Known
    from lwa.diagnostics.table import Table
    from lwa.executors import Executor
    from lwa.models.model import Model
    from lwa.result.polish import Polished
    from lwa.user.progress import Display

type DrawsByName = Mapping[str, NDArray[Any]]
"""Arrays `(chains, draws, *shape)` by name."""
type Polish = Callable[[NDArray[np.float64], int, int, Display], Polished]
"""Corrects draws `(chains, draws, d)`, given the number of passes, the number made before, and the display."""

MOST_POLISHED = 1000
"""Draws in all that `fit.polish` corrects by default: a pass scores every one of them on every row."""
MOST_AT_ONCE = 100_000
"""Rows up to which a certificate advises to read all of them at each step: that takes about a millisecond."""
FEWEST_OF_ARVIZ = 4
"""Draws per chain that ArviZ needs for R-hat and effective draws."""
RUNNING_GROUP = "running_summary"
"""The group of the summary of all draws: a table of one row."""
UNCONSTRAINED_GROUP = "unconstrained_posterior"
"""ArviZ's name for the group of the draws as kernels moved them."""
WARMUP_GROUP, WARMUP_STATS_GROUP = "warmup_posterior", "warmup_sample_stats"
"""The groups of the moves of tune."""
SAVED_GROUPS = {"posterior", "sample_stats", UNCONSTRAINED_GROUP, WARMUP_GROUP, WARMUP_STATS_GROUP, RUNNING_GROUP}
"""All groups that a saved run may have."""


class Origin(NamedTuple):
    """The model and data of a run, which a saved run does not keep."""

    model: "Model"
    rows: "Data"
    polish: Polish
    known: "Known | None" = None  # what the run knows of all rows


class Home(NamedTuple):
    """The folder that kept the draws of a run while they were made."""

    folder: Path
    segment: dict[str, Any] | None  # None if the run kept only a summary of its draws


@dataclass(frozen=True, eq=False)
class Result:
    """Draws of the parameters θ and how they were made; returned by `lwa.sample` and `lwa.load`.

    Attributes
    ----------
    posterior, sample_stats
        Arrays `(chain, draw, *shape)` by name.
    attributes
        Seed, settings, versions, fingerprint of the data, costs, warnings and certificate, as JSON can hold them.
    dims, coords
        Names and labels of the parameters' own axes.
    unconstrained
        If the model has constraints: arrays `(chain, draw, size)` by name, the numbers that the kernels moved, of
        which `posterior` is the image. None if it has none, since both are the same.
    warmup, warmup_stats
        With `keep_tune=True` the moves of tune, in the form of `posterior` and `sample_stats`; else None.
        `attributes["tune_clock"]` has the time of each part.
    running
        With `keep="summary"` the summary of all draws (`lwa.diagnostics.running`), of which `posterior` has only the
        last few; else None.
    """

    posterior: DrawsByName
    sample_stats: DrawsByName
    attributes: Mapping[str, Any]
    dims: Mapping[str, list[str]]
    coords: Mapping[str, list[Any]]
    origin: Origin | None = None
    unconstrained: DrawsByName | None = None
    warmup: DrawsByName | None = None
    warmup_stats: DrawsByName | None = None
    home: Home | None = None
    running: "RunningSummary | None" = None

    @property
    def draws(self) -> int:
        """Kept draws per chain."""
        return int(next(iter(self.posterior.values())).shape[1])

    @property
    def _chains(self) -> int:
        return len(next(iter(self.posterior.values())))

    @cached_property
    def idata(self) -> "xarray.DataTree":
        """An `xarray.DataTree` with the groups `posterior` and `sample_stats`, for ArviZ.

        If the model has constraints, the unconstrained draws are the group `unconstrained_posterior`. With
        `keep_tune=True` the moves of tune are `warmup_posterior` and `warmup_sample_stats`.
        """
        import xarray

        flat = {key: _as_attribute(value) for key, value in self.attributes.items()}

        def build(variables: DrawsByName, axes: Callable[[str, int], list[str]] = self._axes) -> "xarray.Dataset":
            arrays = {
                name: (("chain", "draw", *axes(name, values.ndim - 2)), values) for name, values in variables.items()
            }
            chains, draws = next(iter(variables.values())).shape[:2]
            used = {axis for names, _ in arrays.values() for axis in names}
            labels = {axis: values for axis, values in self.coords.items() if axis in used}
            return xarray.Dataset(
                arrays, coords={"chain": np.arange(chains), "draw": np.arange(draws), **labels}, attrs=flat
            )

        groups = {"posterior": build(self.posterior), "sample_stats": build(self.sample_stats)}
        if self.unconstrained is not None:
            groups[UNCONSTRAINED_GROUP] = build(self.unconstrained, lambda name, _: [name_free_axis(name)])
        if self.warmup is not None and self.warmup_stats is not None:
            groups |= {WARMUP_GROUP: build(self.warmup), WARMUP_STATS_GROUP: build(self.warmup_stats)}
        tree = xarray.DataTree.from_dict(groups)
        tree.attrs.update(flat)
        return tree

    def _axes(self, name: str, count: int) -> list[str]:
        return list(self.dims.get(name, [f"{name}_dim_{i}" for i in range(count)]))

    def summary(self, **options: object) -> Any:
        """Return ArviZ's table: mean, sd, intervals, effective draws, R-hat. Options are those of `arviz.summary`.

        The table is a pandas.DataFrame. If the run kept only a summary of the draws, or if many chains have too few
        draws for ArviZ, it is a `lwa.diagnostics.table.Table`, whose note says so; it takes no options.
        """
        if self.draws == 0:
            raise InputError(f"There are no draws to summarise: {self.attributes.get('stopped', 'none were kept')}.")
        from lwa.diagnostics.running import MANY_CHAINS

        if self.running is not None or (self._chains > MANY_CHAINS and self.draws < FEWEST_OF_ARVIZ):
            return self.own_table(f"ArviZ needs {FEWEST_OF_ARVIZ} draws per chain")
        import arviz_stats  # all of `arviz` would import its plots, in 2.9 s

        return arviz_stats.summary(self.idata, **options)

    def own_table(self, why: str = "ArviZ is made for few long chains") -> "Table":
        """Return lwa's table for many short chains, with nested R-hat; of all draws if the run summarised them.

        `why` begins the note of the table: the reason that it is not ArviZ's.
        """
        from lwa.diagnostics.table import name_scalars, tabulate_draws, tabulate_summary

        names = name_scalars(self.posterior, self.dims, self.coords)
        if self.running is None:
            return tabulate_draws(names, self.posterior, why)
        return tabulate_summary(names, self.running, self._superchains)

    @property
    def _superchains(self) -> int:
        """Groups of chains that shared a start; the default for so many chains if that was not recorded."""
        from lwa.diagnostics.running import count_superchains

        return int(self.attributes.get("superchains") or count_superchains(self._chains))

    def nested_rhat(self, superchains: int | None = None) -> dict[str, NDArray[np.float64]]:
        """Return nested R-hat of every parameter, by name: near 1 once chains have forgotten where they began.

        It is made for many short chains (Margossian et al., 2022): neighbouring chains form superchains, and the
        variance between superchains is compared with the variance inside them. This is informative only if the chains
        of one superchain began at the same place, and superchains at different places. `lwa.sample` arranges that with
        more than 64 chains, unless `initvals` was passed. If the run kept a summary, it covers all draws.

        Parameters
        ----------
        superchains
            Their number; if None, 16 with more than 64 chains, else each chain is its own.
        """
        from lwa.diagnostics.running import collect_moments, compute_nested_rhat

        if superchains is None:
            superchains = self._superchains
        if not is_whole(superchains, least=2) or superchains > self._chains:
            raise InputError(
                f"superchains={superchains!r} must be a whole number from 2 to {self._chains}, the number of chains. "
                "Pass superchains=16, for example, or leave it out."
            )
        if self.draws == 0:
            raise InputError("There are no draws to compare.")
        state = collect_moments(self.posterior) if self.running is None else self.running.moments
        found = compute_nested_rhat(state, superchains).rhat
        shapes = [values.shape[2:] for values in self.posterior.values()]
        parts = np.split(found, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
        return {name: part.reshape(shape) for name, shape, part in zip(self.posterior, shapes, parts, strict=True)}

    def certify(
        self, *, points: int | None = None, progress: bool = True, executor: "Executor | None" = None
    ) -> "Certificate":
        """Measure how far these draws are from the posterior of all rows, and keep the answer as `fit.certificate`.

        Options are those of `lwa.certify`.
        """
        if self.origin is None:
            raise InputError("A saved run keeps no model and no data. Pass them: lwa.certify(model, data, fit).")
        from lwa.diagnostics.certify import certify_layout, lay_out_for
        from lwa.diagnostics.draws import collect_draws

        layout = lay_out_for(self.origin.model, self.origin.rows, progress=progress, executor=executor)
        draws = collect_draws(layout.given, self)
        found = certify_layout(
            layout, draws, self.origin.known, points=points, progress=progress, made_by=self._describe_maker()
        )
        self._keep("certificate", found.as_dict())
        return found

    def _describe_maker(self) -> "MadeBy":
        """Return what the certificate must know for its remedy."""
        from lwa.diagnostics.certificate import ANOTHER, MadeBy

        assert self.origin is not None
        told, ordered = self.attributes, bool(self.origin.rows.ordered)
        if "units_in_all" not in told:
            return ANOTHER  # a rival's
        whole = int(told["units_in_all"])
        corrected = bool(told.get("exact")) or bool(told.get("polish_passes"))
        return MadeBy(whole if corrected else int(told["subset_size"]), whole, not ordered and whole <= MOST_AT_ONCE)

    def polish(self, passes: int = 5, *, draws: int | None = None, progress: bool = True) -> "Result":
        """Correct draws by the full posterior, in so many passes over all rows.

        Each pass moves every draw on the target of its chain's subset and accepts or refuses the outcome by all rows
        (surrogate transitions), which leaves the full posterior invariant. So every draw becomes a short chain. Each
        pass multiplies the error of the draws by the correlation between a draw before and after it, which is measured;
        states are kept from the pass on that leaves less than 5 % of the error, or of the last pass. If one pass is
        enough, 1000 corrected draws become 5000.

        It helps if the error of the subsets is what matters: `fit.certify()` measures that. If nearly all moves are
        accepted, the draws were right, and more draws make their Monte Carlo error smaller at less cost.

        Parameters
        ----------
        passes
            Number of corrections; one more pass scores the draws first. Each evaluates every row for every draw, which
            is reported before it begins.
        draws
            Draws per chain to correct, spread evenly over those kept; at most 1000 in all if None.
        progress
            Show a bar. Ctrl-C ends the correction after the current pass.

        Returns
        -------
        Result
            The corrected draws, several states of each one after the other, with `attributes["polish_acceptance"]`,
            the share of moves accepted over all passes, and `attributes["polish_error_left"]`.
        """
        if self.origin is None:
            raise InputError("A saved run keeps no model and no data, so it cannot be polished. Sample again with it.")
        require_whole("passes", passes, least=1, example=5)
        if draws is not None:
            require_whole("draws", draws, least=1, example=100)
        if self.draws == 0:
            raise InputError("There are no draws to polish.")
        from lwa.user.progress import Display

        chains = self._chains
        count = min(self.draws, max(1, MOST_POLISHED // chains) if draws is None else draws)
        kept = np.linspace(0, self.draws - 1, count).round().astype(int)
        moved = self.posterior if self.unconstrained is None else self.unconstrained
        parameters = [moved[name] for name in self.origin.model.shapes]
        theta = np.concatenate([values[:, kept].reshape(chains, count, -1) for values in parameters], -1)
        used = int(self.attributes.get("polish_passes", 0))
        with Display(progress) as display:
            done = self.origin.polish(theta, passes, used, display)
        stats = {
            "lp": done.log_posterior,
            "acceptance_rate": done.acceptance,
            "accepted": done.accepted,
            "subset_accepted": done.refreshed,
            "subset_distance": done.distance,
            "n_rows_read": np.full(
                done.acceptance.shape, -(-done.passes * len(self.origin.rows) // done.states), np.int64
            ),
        }
        left = float(self.attributes.get("polish_error_left", 1.0)) * done.left
        polished = {"polish_passes": used + done.passes, "polish_acceptance": done.rate, "polish_error_left": left}
        before = {name: value for name, value in self.attributes.items() if name != "certificate"}
        model = self.origin.model
        return replace(
            self, posterior=model.with_derived(done.theta), sample_stats=stats, attributes=before | polished,
            unconstrained=model.free_by_name(done.theta) if model.constrained else None, home=None, running=None,
        )  # fmt: skip

    @property
    def certificate(self) -> "Certificate | None":
        """The last certificate of `fit.certify()`, saved with the run; None if it was never called."""
        from lwa.diagnostics.certificate import Certificate

        kept = self.attributes.get("certificate")
        return None if kept is None else Certificate.from_dict(kept)

    def _keep(self, key: str, value: object) -> None:
        """Add an attribute, also to `idata` if that exists: others may hold it and have added to it."""
        object.__setattr__(self, "attributes", {**self.attributes, key: value})
        if "idata" in self.__dict__:
            for group in self.idata.subtree:
                group.attrs[key] = _as_attribute(value)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the run to a folder that `lwa.load` reads. Draws that a checkpoint already wrote there are kept."""
        home = self.home if self.home is not None and Path(folder).absolute() == self.home.folder.absolute() else None
        draws = {
            "posterior": self.posterior,
            "sample_stats": self.sample_stats,
            UNCONSTRAINED_GROUP: self.unconstrained,
        }
        tune = {WARMUP_GROUP: self.warmup, WARMUP_STATS_GROUP: self.warmup_stats}
        tables = [
            {f"{group}/{name}": values for group, held in groups.items() for name, values in (held or {}).items()}
            for groups in (draws, tune)
        ]
        if self.running is not None:
            parts = {name: value for part in self.running for name, value in part._asdict().items()}
            tables.append({f"{RUNNING_GROUP}/{name}": np.asarray(value)[None, None] for name, value in parts.items()})
        description = {"attributes": dict(self.attributes), "dims": dict(self.dims), "coords": dict(self.coords)}
        already = None if home is None else [home.segment] if home.segment is not None else []
        if already:
            tables = tables[1:]
        return write_run(folder, [table for table in tables if table], description, already)

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write one self-contained page of HTML and return its path; `report.html` if None.

        The page shows the certificate's verdict, the table, intervals and densities, chains, subsets,
        autocorrelations, warnings, settings and the call that repeats the run. It never overwrites a file that is not
        a report.
        """
        from lwa.result.report.page import write_report

        return write_report(self, path)

    def to_netcdf(self, path: str | os.PathLike[str]) -> Path:
        """Write one NetCDF file that ArviZ and xarray read."""
        self.idata.to_netcdf(path, engine="h5netcdf")
        return Path(path)

    def __repr__(self) -> str:
        """Return sizes, cost and warnings."""
        lines = [f"lwa.Result: {self._chains} chains x {self.draws} draws of {', '.join(self.posterior)}"]
        if self.running is not None:
            made = int(self.running.moments.count)
            lines.append(f"  summarised: {made:,} draws per chain, of which these are the last")
        shown = [("target", "target"), ("subset_size", "subset size"), ("seconds", "seconds"), ("stopped", "stopped")]
        lines += [f"  {label}: {self.attributes[key]}" for key, label in shown if self.attributes.get(key)]
        if kept := self.attributes.get("certificate"):
            lines.append(f"  certificate: {kept['verdict'].split('. ')[0].rstrip('.')}")
        lines += [f"  warning: {warning}" for warning in self.attributes.get("warnings", [])]
        return "\n".join(lines)


def name_free_axis(name: str) -> str:
    """Return the name of the axis of a parameter's unconstrained draws."""
    return f"{name}~"


def _as_attribute(value: object) -> str | float:
    """Return an attribute as NetCDF holds it: a string, or a number of at most 64 bits; anything else as JSON."""
    if isinstance(value, str | float) or (type(value) is int and -(2**63) <= value < 2**63):
        return value
    return json.dumps(value)


def split_groups(variables: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the variables of each group by name, from variables by "group/name"."""
    groups: dict[str, dict[str, NDArray[Any]]] = {}
    for name, values in variables.items():
        group, _, variable = name.partition("/")
        groups.setdefault(group, {})[variable] = values
    return groups


def read_running(table: Mapping[str, NDArray[Any]]) -> "RunningSummary":
    """Return a running summary from the table that `Result.save` wrote."""
    from lwa.diagnostics.running import ChainMoments, RunningSummary, Sketch

    moments, sketch = ([table[name][0, 0] for name in part._fields] for part in (ChainMoments, Sketch))
    return RunningSummary(ChainMoments(*moments), Sketch(*sketch))


def load(folder: str | os.PathLike[str]) -> Result:
    """Return a run that `fit.save` or a checkpoint wrote."""
    variables, manifest = read_run(folder)
    groups = split_groups(variables)
    try:
        if strange := set(groups) - SAVED_GROUPS:
            raise KeyError(strange.pop())
        streamed = next((one for one in manifest.get("segments", []) if "record" in one), None)
        over = "segments" in manifest  # else the run has not ended
        home = Home(Path(folder), streamed) if over and find_kept_files(Path(folder)) else None
        summarised = groups.get(RUNNING_GROUP)
        return Result(
            posterior=groups["posterior"], sample_stats=groups["sample_stats"], attributes=manifest["attributes"],
            dims=manifest["dims"], coords=manifest["coords"], unconstrained=groups.get(UNCONSTRAINED_GROUP),
            warmup=groups.get(WARMUP_GROUP), warmup_stats=groups.get(WARMUP_STATS_GROUP), home=home,
            running=None if summarised is None else read_running(summarised),
        )  # fmt: skip
    except KeyError as error:
        raise RunFolderError(f"{folder} is damaged: {error} is missing or unknown. Restore it from a copy.") from None
