"""What a run gives back: draws, what happened while they were drawn, and how to repeat it."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lwa.errors import InputError, RunFolderError
from lwa.storage.run_folder import find_kept_files, read_run, write_run

if TYPE_CHECKING:
    import xarray

    from lwa.diagnostics.certificate import Certificate
    from lwa.diagnostics.running import RunningSummary
    from lwa.diagnostics.table import Table


MOST_POLISHED = 1000
"""Draws that `fit.polish` corrects in all unless told otherwise: a pass scores every one of them on every row."""
FEWEST_OF_ARVIZ = 4
"""Draws a chain with which ArviZ has anything to say of mixing."""
RUNNING_GROUP = "running_summary"
"""The group of the summary of all draws, in a table of one row."""
UNCONSTRAINED_GROUP = "unconstrained_posterior"
"""The group of the draws as kernels moved them, as ArviZ calls it."""
WARMUP_GROUP, WARMUP_STATS_GROUP = "warmup_posterior", "warmup_sample_stats"
"""The groups of the path of tune."""


class Origin(NamedTuple):
    """What a run came from, which a saved one does not keep."""

    model: Any
    rows: Any
    polish: Any  # (theta, passes, passes made before, display) -> Polished


class Home(NamedTuple):
    """Where the draws of a run lie that was kept on disk while it went on."""

    folder: Path
    segment: dict[str, Any] | None  # None: they were summarised, and only the state of the run is there


@dataclass(frozen=True, eq=False)
class Result:
    """Draws of θ and how they came about; made by `lwa.sample` or `lwa.load`.

    Attributes
    ----------
    posterior, sample_stats
        Arrays `(chain, draw, *shape)` by name.
    attributes
        Seed, settings, versions, fingerprint of the data, costs, warnings and certificate: all that JSON can hold.
    dims, coords
        Names and labels of the parameters' own axes.
    unconstrained
        Where the model has constraints: arrays `(chain, draw, size)` by name, the numbers that the kernels moved, of
        which `posterior` is the image. None where it has none, and both are the same.
    warmup, warmup_stats
        With `keep_tune=True` the path of tune, as `posterior` and `sample_stats` have the draws; else None.
        `attributes["tune_clock"]` says when each part of it was there.
    running
        With `keep="summary"` the summary of all draws (`lwa.diagnostics.running`), of which `posterior` has the last
        few; else None.
    """

    posterior: Mapping[str, NDArray[Any]]
    sample_stats: Mapping[str, NDArray[Any]]
    attributes: Mapping[str, Any]
    dims: Mapping[str, list[str]]
    coords: Mapping[str, list[Any]]
    origin: Origin | None = None
    unconstrained: Mapping[str, NDArray[Any]] | None = None
    warmup: Mapping[str, NDArray[Any]] | None = None
    warmup_stats: Mapping[str, NDArray[Any]] | None = None
    home: Home | None = None
    running: "Running | None" = None

    @property
    def draws(self) -> int:
        """Kept draws a chain."""
        return int(next(iter(self.posterior.values())).shape[1])

    @cached_property
    def idata(self) -> "xarray.DataTree":
        """A DataTree with the groups `posterior` and `sample_stats`, which ArviZ reads as it is.

        Where the model has constraints, the draws before they were mapped are a group `unconstrained_posterior`; with
        `keep_tune=True` the path of tune is `warmup_posterior` and `warmup_sample_stats`.
        """
        import xarray

        flat = {key: _as_attribute(value) for key, value in self.attributes.items()}

        def dataset(variables: Mapping[str, NDArray[Any]], axes_of: Any = self._axes) -> "xarray.Dataset":
            arrays = {
                name: (("chain", "draw", *axes_of(name, values.ndim - 2)), values) for name, values in variables.items()
            }
            chains, draws = next(iter(variables.values())).shape[:2]
            used = {axis for axes, _ in arrays.values() for axis in axes}
            labels = {axis: values for axis, values in self.coords.items() if axis in used}
            return xarray.Dataset(
                arrays, coords={"chain": np.arange(chains), "draw": np.arange(draws), **labels}, attrs=flat
            )

        groups = {"posterior": dataset(self.posterior), "sample_stats": dataset(self.sample_stats)}
        if self.unconstrained is not None:
            groups[UNCONSTRAINED_GROUP] = dataset(self.unconstrained, lambda name, _: [name_free_axis(name)])
        if self.warmup is not None and self.warmup_stats is not None:
            groups |= {WARMUP_GROUP: dataset(self.warmup), WARMUP_STATS_GROUP: dataset(self.warmup_stats)}
        tree = xarray.DataTree.from_dict(groups)
        tree.attrs.update(flat)
        return tree

    def _axes(self, name: str, count: int) -> list[str]:
        return list(self.dims.get(name, [f"{name}_dim_{i}" for i in range(count)]))

    def summary(self, **options: Any) -> Any:
        """ArviZ's table: mean, sd, intervals, effective draws, R-hat. Options are those of `arviz.summary`.

        A pandas.DataFrame. Where ArviZ is not installed, only a summary of the draws was kept, or many chains have too
        few draws for it, it is a `lwa.diagnostics.table.Table` of lwa's own numbers, which says so; it takes no
        options.
        """
        if self.draws == 0:
            raise InputError(f"There are no draws to summarise: {self.attributes.get('stopped', 'none were kept')}.")
        from lwa.diagnostics.running import MANY_CHAINS

        chains = len(next(iter(self.posterior.values())))
        if self.running is not None or (chains > MANY_CHAINS and self.draws < FEWEST_OF_ARVIZ):
            return self.own_table(f"ArviZ needs {FEWEST_OF_ARVIZ} draws a chain")
        try:
            import arviz_stats  # all of `arviz` would bring its plots along
        except ImportError:
            return self.own_table("ArviZ is not installed")
        return arviz_stats.summary(self.idata, **options)

    def own_table(self, why: str = "Chains are many") -> "Table":
        """The same without ArviZ, and why: of all draws where they were summarised; of many chains nested R-hat."""
        from lwa.diagnostics.table import name_scalars, tabulate_draws, tabulate_summary

        names = name_scalars(self.posterior, self.dims, self.coords)
        if self.running is None:
            return tabulate_draws(names, self.posterior, why)
        return tabulate_summary(names, self.running, self._superchains)

    @property
    def _superchains(self) -> int:
        """How many there are: as chains began, else as many as so many chains make."""
        from lwa.diagnostics.running import count_superchains

        chains = len(next(iter(self.posterior.values())))
        return int(self.attributes.get("superchains") or count_superchains(chains))

    def nested_rhat(self, superchains: int | None = None) -> dict[str, NDArray[np.float64]]:
        """Nested R-hat of every parameter, by name: near 1 once chains have forgotten where they began.

        Made for many short chains (Margossian et al., 2022): chains are grouped into superchains, neighbours together,
        and the variance between these is compared with that inside them. It tells something only where the chains of
        one began at the same place, and superchains at different ones. So it is with more than 64 chains, unless
        `initvals` was passed. Of a run that kept a summary it is that of all draws.

        Parameters
        ----------
        superchains
            How many there are; 16 where chains are more than 64, else each chain is its own.
        """
        from lwa.diagnostics.running import collect_moments, compute_nested_rhat

        chains = len(next(iter(self.posterior.values())))
        if superchains is None:
            superchains = self._superchains
        if isinstance(superchains, bool) or not isinstance(superchains, int) or not 2 <= superchains <= chains:
            raise InputError(
                f"superchains={superchains!r} must be a whole number from 2 to {chains}, the number of chains. "
                "Pass superchains=16, for example, or leave it out."
            )
        if self.draws == 0:
            raise InputError("There are no draws to compare.")
        state = collect_moments(self.posterior) if self.running is None else self.running.moments
        found = compute_nested_rhat(state, superchains).rhat
        sizes = [int(np.prod(values.shape[2:])) for values in self.posterior.values()]
        parts = np.split(found, np.cumsum(sizes)[:-1])
        return {
            name: part.reshape(values.shape[2:])
            for (name, values), part in zip(self.posterior.items(), parts, strict=True)
        }

    def certify(self, **options: Any) -> "Certificate":
        """How far are these draws from the posterior of all rows? Kept with them, as `fit.certificate`.

        Options are those of `lwa.certify`.
        """
        if self.origin is None:
            raise InputError("A saved run keeps no model and no data. Pass them: lwa.certify(model, data, fit).")
        from lwa.diagnostics.certify import certify

        found = certify(self.origin.model, self.origin.rows, self, **options)
        self._keep("certificate", found.as_dict())
        return found

    def polish(self, passes: int = 5, *, draws: int | None = None, progress: bool = True) -> "Result":
        """Correct draws by the full posterior: after so many passes over all rows they are draws of it.

        Each pass moves every draw on the target given its chain's subset and accepts or refuses the outcome by all
        rows (surrogate transitions), which leaves the full posterior invariant. In the bulk, what the calibrated target
        was off shrinks by the share refused at each pass; a draw far out in a tail may need many.

        Parameters
        ----------
        passes
            Corrections; one pass more scores the draws first.
        draws
            Draws a chain to correct, spread evenly over those kept; at most 1000 in all when not given.
        progress
            Show what is going on. Ctrl-C ends it after the pass at hand.

        Returns
        -------
        Result
            The corrected draws, with `attributes["polish_acceptance"]`.
        """
        if self.origin is None:
            raise InputError("A saved run keeps no model and no data, so it cannot be polished. Sample again with it.")
        for name, value in (("passes", passes), ("draws", draws)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1):
                raise InputError(f"{name}={value!r} must be a whole number >= 1. Pass passes=5, for example.")
        if self.draws == 0:
            raise InputError("There are no draws to polish.")
        from lwa.user.progress import Display

        chains = len(next(iter(self.posterior.values())))
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
            "n_rows_read": np.full(done.acceptance.shape, done.passes * len(self.origin.rows), np.int64),
        }
        told = {"polish_passes": used + done.passes, "polish_acceptance": float(done.acceptance.mean())}
        before = {name: value for name, value in self.attributes.items() if name != "certificate"}
        model = self.origin.model
        return replace(
            self,
            posterior=model.with_derived(done.theta),
            sample_stats=stats,
            attributes=before | told,
            unconstrained=model.free_by_name(done.theta) if model.constrained else None,
            home=None,
            running=None,
        )

    @property
    def certificate(self) -> "Certificate | None":
        """What `fit.certify()` found last, also after the run was saved and loaded; None if it was never called."""
        from lwa.diagnostics.certificate import Certificate

        kept = self.attributes.get("certificate")
        return None if kept is None else Certificate.from_dict(kept)

    def _keep(self, key: str, value: Any) -> None:
        """One more attribute, in `idata` too if that was built before: others may hold it and have added to it."""
        object.__setattr__(self, "attributes", {**self.attributes, key: value})
        if "idata" in self.__dict__:
            for group in self.idata.subtree:
                group.attrs[key] = _as_attribute(value)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the run to a folder that `lwa.load` reads; where it was kept while it went on, its draws are there."""
        at_home = self.home is not None and Path(folder).absolute() == self.home.folder.absolute()
        draws = {"posterior": self.posterior, "sample_stats": self.sample_stats, UNCONSTRAINED_GROUP: self.unconstrained}
        path = {WARMUP_GROUP: self.warmup, WARMUP_STATS_GROUP: self.warmup_stats}
        tables = [
            {f"{group}/{name}": values for group, held in groups.items() for name, values in (held or {}).items()}
            for groups in (draws, path)
        ]
        if self.running is not None:
            parts = {name: value for part in self.running for name, value in part._asdict().items()}
            tables.append({f"{RUNNING_GROUP}/{name}": np.asarray(value)[None, None] for name, value in parts.items()})
        description = {"attributes": dict(self.attributes), "dims": dict(self.dims), "coords": dict(self.coords)}
        already: list[dict[str, Any]] | None = None
        if at_home and self.home is not None:
            already = [] if self.home.segment is None else [self.home.segment]
        if already:
            tables = tables[1:]
        return write_run(folder, [table for table in tables if table], description, already)

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write one page of HTML that needs nothing else, and return its path; `report.html` where none is given.

        The certificate's verdict first, then the table, intervals and densities, chains, the story of the subsets,
        autocorrelations, warnings, settings and the call that repeats the run. A file that is no report is left alone.
        """
        from lwa.result.report.page import write_report

        return write_report(self, path)

    def to_netcdf(self, path: str | os.PathLike[str]) -> Path:
        """Write one NetCDF file, for ArviZ and xarray anywhere."""
        self.idata.to_netcdf(path, engine="h5netcdf")
        return Path(path)

    def __repr__(self) -> str:
        """Sizes, cost and warnings at a glance."""
        chains = next(iter(self.posterior.values())).shape[0]
        lines = [f"lwa.Result: {chains} chains x {self.draws} draws of {', '.join(self.posterior)}"]
        if self.running is not None:
            lines.append(f"  summarised: {int(self.running.moments.count):,} draws a chain, these being the last")
        told = [("target", "target"), ("subset_size", "subset size"), ("seconds", "seconds"), ("stopped", "stopped")]
        lines += [f"  {label}: {self.attributes[key]}" for key, label in told if self.attributes.get(key)]
        if kept := self.attributes.get("certificate"):
            lines.append(f"  certificate: {kept['verdict'].split('. ')[0].rstrip('.')}")
        lines += [f"  warning: {warning}" for warning in self.attributes.get("warnings", [])]
        return "\n".join(lines)


def name_free_axis(name: str) -> str:
    """The axis of a parameter's unconstrained draws."""
    return f"{name}~"


def _as_attribute(value: Any) -> Any:
    """An attribute as NetCDF holds it: a text, or a number of at most 64 bits; anything else as JSON."""
    held = isinstance(value, str | float) or (type(value) is int and -(2**63) <= value < 2**63)
    return value if held else json.dumps(value)


def split_groups(variables: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
    """From "group/name" to each group's own."""
    groups: dict[str, dict[str, NDArray[Any]]] = {}
    for name, values in variables.items():
        group, _, variable = name.partition("/")
        groups.setdefault(group, {})[variable] = values
    return groups


def read_running(table: Mapping[str, NDArray[Any]]) -> "Running":
    """A summary that was saved."""
    from lwa.diagnostics.running import ChainMoments, RunningSummary, Sketch

    def part(fields: tuple[str, ...]) -> list[NDArray[Any]]:
        return [table[name][0, 0] for name in fields]

    return RunningSummary(ChainMoments(*part(ChainMoments._fields)), Sketch(*part(Sketch._fields)))


def load(folder: str | os.PathLike[str]) -> Result:
    """A run saved by `fit.save`."""
    variables, manifest = read_run(folder)
    groups = split_groups(variables)
    try:
        if strange := set(groups) - {"posterior", "sample_stats", UNCONSTRAINED_GROUP, WARMUP_GROUP, WARMUP_STATS_GROUP, RUNNING_GROUP}:
            raise KeyError(strange.pop())
        posterior, stats = groups["posterior"], groups["sample_stats"]
        described = manifest["attributes"], manifest["dims"], manifest["coords"]
        streamed = next((one for one in manifest.get("segments", []) if "record" in one), None)
        over = "segments" in manifest  # else it still goes on
        home = Home(Path(folder), streamed) if over and find_kept_files(Path(folder)) else None
        summarised = groups.get(RUNNING_GROUP)
        return Result(
            posterior, stats, *described, None, groups.get(UNCONSTRAINED_GROUP), groups.get(WARMUP_GROUP), groups.get(WARMUP_STATS_GROUP),
            home, None if summarised is None else read_running(summarised),
        )  # fmt: skip
    except KeyError as error:
        raise RunFolderError(f"{folder} is damaged: {error} is missing or unknown. Restore it from a copy.") from None
