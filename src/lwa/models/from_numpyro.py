"""NumPyro models: what is observed in the plate over rows gives the rows' terms, all else the prior."""

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import PyTree
from numpyro.distributions import constraints as numpyro_constraints
from numpyro.distributions.distribution import Unit
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import init_to_median
from numpyro.primitives import Messenger

from lwa.errors import ModelError
from lwa.models.check import report_user_errors
from lwa.models.model import Model
from lwa.models.rowwise import Adapter, find_derived_names, is_same, quote_names, take_few_and_last
from lwa.rows import as_rows
from lwa.rows.passes import count_rows

type Site = dict[str, Any]
"""NumPyro's record of one site: its type, distribution, value, plates."""
type Sites = dict[str, Site]
"""NumPyro's record of one call of a model, by the names of its sites."""
type Constraint = Any
"""A constraint of NumPyro."""
type SiteStarts = dict[str, tuple[Array, Constraint]]
"""Two values of each latent site, and its constraint at both."""

ONE_AT_A_TIME = threading.RLock()
"""NumPyro keeps its handlers on one global stack, and chains are traced on several threads."""


def from_numpyro(
    model: Callable[..., object],
    data: object,
    *,
    constants: Mapping[str, object] | None = None,
    plate: str | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[object]] | None = None,
) -> Model:
    """Return a NumPyro model as a `lwa.Model` with the same log density, log p(θ) + Σ_k log f(Y_k|θ).

    What is observed inside one `numpyro.plate` over the rows makes log f(Y_k|θ), summed over the observed sites of row
    k. All latent sites and the factors outside that plate make log p(θ). θ is a dict of the latent sites, with the
    constraints of NumPyro. Results include deterministic sites, except those that depend on the rows.

    Parameters
    ----------
    model
        A function with NumPyro's primitives. It is called with any number of rows: a plate of a fixed size, or one that
        subsamples, is made as long as they are.
    data
        The rows, as `lwa.sample` takes them. Columns are passed to the arguments of the same names; others are not
        used. One array is passed to the only argument. A few rows are read.
    constants
        Arguments that are not rows, such as a number of groups.
    plate
        The name of the plate over rows, if an observed site lies in several plates of their length.
    dims, coords
        Names of the sites' axes and their labels. By default, axes are named after their plates.

    Returns
    -------
    Model
        For `lwa.sample(model, data)` with the same data.

    Examples
    --------
    >>> import numpy as np, numpyro, numpyro.distributions as dist, lwa
    >>> def regression(x, y):
    ...     slope = numpyro.sample("slope", dist.Normal(0, 10))
    ...     sigma = numpyro.sample("sigma", dist.HalfNormal(5))
    ...     with numpyro.plate("rows", len(y)):
    ...         numpyro.sample("y", dist.Normal(slope * x, sigma), obs=y)
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=10_000)
    >>> data = {"x": x, "y": 2 * x + rng.normal(size=10_000)}
    >>> model = lwa.from_numpyro(regression, data)
    >>> model.scalar_names
    ['log(sigma)', 'slope']
    """
    if not callable(model):
        raise ModelError(f"model={model!r} is not a function. Pass the NumPyro model itself, not what it returns.")
    rows = as_rows(data)
    few, last = take_few_and_last(rows)
    arguments = match_arguments(model, few, constants or {})
    with jax.enable_x64(True):
        whole = trace_all_rows(model, arguments, few, len(rows))
        chosen = find_row_plate(whole, len(rows), plate, arguments)
        refuse_numpyro_sites(whole, chosen)
        adapted = NumpyroAdapter(model, arguments, chosen, last)
        sites, starts = adapted.start(few)
        supports = {name: find_site_constraint(name, two, sites[name]) for name, (_, two) in starts.items()}
        require_fixed_shapes(starts, whole, adapted.shapes(last))
        init = {name: np.asarray(values[0], np.float64) for name, (values, _) in starts.items()}
        derived = find_derived_names(adapted, init, few, last, report_numpyro_errors)
        draws = adapted.can_draw()
    named = name_axes(sites, [*init, *derived]) | {name: list(axes) for name, axes in (dims or {}).items()}
    return Model(
        adapted.log_likelihood, adapted.log_prior, init, prior_draw=adapted.prior_draw if draws else None,
        constraints={name: support for name, support in supports.items() if support is not None}, dims=named,
        coords=coords, derived=partial(adapted.derived, tuple(derived)) if derived else None,
    )  # fmt: skip


class Arguments(NamedTuple):
    """How columns of rows become arguments of a model."""

    names: tuple[str, ...]  # of the arguments that columns are passed to
    single: str | None  # the only one, where rows are one array
    constants: Mapping[str, object]

    def read(self, rows: PyTree) -> dict[str, object]:
        """Return keyword arguments; rows as JAX's arrays, which can be indexed by what is traced."""
        columns = rows if self.single is None else {self.single: rows}
        return {name: jnp.asarray(columns[name]) for name in self.names} | dict(self.constants)


def match_arguments(model: Callable[..., object], rows: PyTree, constants: Mapping[str, object]) -> Arguments:
    """Return which arguments take columns; refuse an argument that nothing is passed to."""
    parameters = inspect.signature(model).parameters.values()
    takes = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    needed = [one.name for one in parameters if one.name in takes and one.default is one.empty]
    if unknown := [name for name in constants if name not in takes and not takes_any]:
        raise ModelError(
            f"constants names {unknown[0]!r}, which is not an argument of the model. Valid: {quote_names(takes)}. Pass "
            "constants={'groups': 7} to a model with an argument groups, for example."
        )
    if not isinstance(rows, Mapping):
        free = [name for name in takes if name not in constants]
        single = [name for name in needed if name not in constants] or free
        if len(single) != 1:
            raise ModelError(f"data is one array, but the model takes {quote_names(free)}. Pass a dict by these names.")
        return Arguments((single[0],), single[0], constants)
    if both := [name for name in constants if name in rows]:
        raise ModelError(f"{both[0]!r} is a column of data and one of the constants. Pass it as one of them.")
    if missing := [name for name in needed if name not in rows and name not in constants]:
        raise ModelError(
            f"The model's argument {missing[0]!r} is not a column of data, which has {quote_names(rows)}. Pass data "
            f"with a column {missing[0]!r}, or what is the same for all rows as constants={{{missing[0]!r}: ...}}."
        )
    return Arguments(tuple(name for name in rows if takes_any or name in takes), None, constants)


class ResizedPlate(Messenger):  # type: ignore[misc]
    """A handler that makes the plate over rows as long as the rows at hand, each of which counts once."""

    def __init__(self, fn: Callable[..., object], plate: str, count: int) -> None:
        self.plate, self.count, self.size = plate, count, count
        super().__init__(fn)

    def process_message(self, msg: Site) -> None:
        """Change messages after all of the model's own handlers, the plates among them."""
        if msg["type"] == "plate" and msg["name"] == self.plate:
            self.size = msg["args"][0]
            msg["args"], msg["value"] = (self.size, self.count), jnp.arange(self.count)
        elif msg["type"] == "subsample":
            msg["kwargs"] = {"event_dim": None}  # the plate would compare the rows with its size, and take some
        elif msg["type"] == "sample" and is_inside(msg, self.plate) and self.size != self.count:
            msg["scale"] = msg["scale"] / (self.size / self.count)


@dataclass(frozen=True, eq=False)
class NumpyroAdapter(Adapter):
    """A NumPyro model with its plate over rows."""

    model: Callable[..., object]
    arguments: Arguments
    plate: str
    row: PyTree  # one row, to call the model for what does not depend on rows

    def log_likelihood(self, theta: PyTree, rows: PyTree) -> Array:
        """Return the terms of what is observed in the plate, one per row."""

        def terms() -> Iterator[Array]:
            for site in self.trace_sites(theta, rows).values():
                axis = find_plate_axis(site, self.plate) if site["type"] == "sample" else None
                if axis is not None:
                    values = site_log_density(site)
                    row_axis = values.ndim + axis
                    yield values.sum([other for other in range(values.ndim) if other != row_axis])

        return jnp.asarray(sum(terms(), start=0.0)).astype(jnp.result_type(*jax.tree.leaves(theta)))

    def log_prior(self, theta: PyTree, rows: PyTree = None) -> Array:
        """Return the log density of all other sites."""
        sites = self.trace_sites(theta, self.row if rows is None else rows).values()
        outside = [site for site in sites if site["type"] == "sample" and not is_inside(site, self.plate)]
        total = sum((site_log_density(site).sum() for site in outside), start=jnp.zeros(()))
        return total.astype(jnp.result_type(*jax.tree.leaves(theta)))

    def deterministic(self, theta: PyTree, rows: PyTree) -> dict[str, Array]:
        """Return deterministic values outside of the plate."""
        sites = {name: site for name, site in self.trace_sites(theta, rows).items() if site["type"] == "deterministic"}
        return {name: jnp.asarray(site["value"]) for name, site in sites.items() if not is_inside(site, self.plate)}

    def prior_draw(self, key: Array) -> dict[str, Array]:
        """Return a draw of the latent sites."""
        sites = self.call(seed(self.model, key), self.row)
        return {name: site["value"] for name, site in sites.items() if is_latent(site)}

    def can_draw(self) -> bool:
        """Return whether all priors can be drawn from: improper ones cannot."""
        try:
            jax.eval_shape(self.prior_draw, jax.random.key(0))
        except NotImplementedError:
            return False
        return True

    def start(self, rows: PyTree) -> tuple[Sites, SiteStarts]:
        """Return the sites, and two values near the prior's median, if it has one, and supports of each latent one."""
        sites: Sites = {}

        def call(key: Array) -> SiteStarts:
            sites.update(self.call(substitute(seed(self.model, key), substitute_fn=init_to_median()), rows))
            return {name: (site["value"], site["fn"].support) for name, site in sites.items() if is_latent(site)}

        with report_numpyro_errors(f"{count_rows(rows)} rows of data"):
            # Compiled as a whole: one by one, JAX compiles every operation of the model.
            return sites, jax.jit(jax.vmap(call))(jax.random.split(jax.random.key(0)))

    def shapes(self, rows: PyTree) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the latent sites."""
        with report_numpyro_errors(f"{count_rows(rows)} rows of data"):
            drawn = jax.eval_shape(lambda: {name: value for name, (value, _) in self.start(rows)[1].items()})
        return {name: value.shape[1:] for name, value in drawn.items()}

    def trace_sites(self, theta: PyTree, rows: PyTree) -> Sites:
        """Return the sites at θ."""
        return self.call(substitute(self.model, data=dict(theta)), rows)

    def call(self, model: Callable[..., object], rows: PyTree) -> Sites:
        """Return the sites of a model, with or without handlers of its own."""
        with ONE_AT_A_TIME:
            whole = trace(ResizedPlate(model, self.plate, count_rows(rows)))
            return whole.get_trace(**self.arguments.read(rows))


def site_log_density(site: Site) -> Array:
    """Return what a site adds to the log density, one number for each of its distribution's batch."""
    fn, value, scale = site["fn"], site["value"], site["scale"]
    terms = fn.log_prob(value, site["intermediates"]) if site["intermediates"] else fn.log_prob(value)
    return jnp.asarray(terms if scale is None else scale * terms)


def find_plate_axis(site: Site, plate: str) -> int | None:
    """Return the axis of a plate in a site's batch, counted from the last; None if the site is outside of it."""
    return next((frame.dim for frame in site["cond_indep_stack"] if frame.name == plate), None)


def is_inside(site: Site, plate: str) -> bool:
    """Return whether a site is inside of a plate."""
    return find_plate_axis(site, plate) is not None


def is_latent(site: Site) -> bool:
    """Return whether a site is a random variable that is not observed."""
    return site["type"] == "sample" and not site["is_observed"]


def is_factor(site: Site) -> bool:
    """Return whether a site is `numpyro.factor`, which observes nothing."""
    fn = site["fn"]
    while hasattr(fn, "base_dist"):  # expanded by a plate, or masked
        fn = fn.base_dist
    return isinstance(fn, Unit)


def trace_all_rows(model: Callable[..., object], arguments: Arguments, rows: PyTree, count: int) -> Sites:
    """Return the sites for all rows, without values: as the model was meant to be called."""
    found: Sites = {}

    def call(rows: PyTree) -> None:
        with ONE_AT_A_TIME:
            start = substitute(seed(model, jax.random.key(0)), substitute_fn=init_to_median())
            found.update(trace(start).get_trace(**arguments.read(rows)))

    abstract = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape[1:]), leaf.dtype), rows)  # type: ignore[no-untyped-call]
    with report_numpyro_errors(f"{count} rows without values"):
        jax.eval_shape(call, abstract)
    return found


@contextmanager
def report_numpyro_errors(arguments: str) -> Iterator[None]:
    """Raise what the model raises as a ModelError; if it reads numbers off the data, with a way out."""
    try:
        with report_user_errors("model", arguments):
            yield
    except ModelError as error:
        if not isinstance(error.__cause__, jax.errors.JAXTypeError):
            raise
        raise ModelError(
            f"{error} What the model reads off the data, such as a number of groups, is a constant: pass "
            "lwa.from_numpyro(model, data, constants={'groups': 7})."
        ) from error.__cause__


def find_row_plate(sites: Sites, count: int, asked: str | None, arguments: Arguments) -> str:
    """Return the plate that holds all observations, one per row."""
    sizes = {name: site["args"][0] for name, site in sites.items() if site["type"] == "plate"}
    if asked is not None and asked not in sizes:
        raise ModelError(f"plate={asked!r} is not a plate of the model. Valid: {quote_names(sizes)}. Pass one of them.")
    fits = [name for name, size in sizes.items() if (size == count if asked is None else name == asked)]
    observed = {name: site for name, site in sites.items() if site["type"] == "sample" and site["is_observed"]}
    within = {name: [one for one in fits if is_inside(site, one)] for name, site in observed.items()}
    within = {name: plates for name, plates in within.items() if plates or not is_factor(observed[name])}
    if not within:
        raise ModelError(
            f"No site of the model is observed: nothing was passed to its obs=. Columns of data are passed to the "
            f"arguments {quote_names(arguments.names)}. Name the columns after the model's arguments."
        )
    for name, plates in within.items():
        if not plates:
            around = {plate: size for plate, size in sizes.items() if is_inside(observed[name], plate)}
            where = f"in plates of the sizes {around}" if around else "in no plate"
            raise ModelError(
                f"{name!r} is observed {where}, outside of a plate over the {count} rows of data. Put it into "
                f"`with numpyro.plate('rows', len({next(iter(arguments.names), 'y')})):`; a fact that is not a row is "
                "a numpyro.factor."
            )
    common = [plate for plate in fits if all(plate in plates for plates in within.values())]
    if not common:
        told = "; ".join(f"{name!r} in {quote_names(plates)}" for name, plates in within.items())
        raise ModelError(
            f"Sites are observed in different plates of {count} rows: {told}. Put them into the same "
            "numpyro.plate, so that a row is one observation of each."
        )
    if len(common) > 1:
        hint = f"Pass plate={common[0]!r}, or whichever goes over rows."
        raise ModelError(f"The plates {quote_names(common)} all have the length of data, {count}. {hint}")
    return common[0]


def refuse_numpyro_sites(sites: Sites, plate: str) -> None:
    """Refuse sites that no θ of fixed length can hold, or no kernel can move."""
    for name, site in sites.items():
        if site["type"] == "plate" and name != plate and site["args"][1] not in (None, site["args"][0]):
            took = f"The plate {name!r} takes {site['args'][1]} of {site['args'][0]}"
            raise ModelError(f"{took}, but rows are in {plate!r}. Leave its subsample_size out.")
        if site["type"] in ("param", "mutable"):
            came = f"{name!r} is a numpyro.{site['type']}, which has no prior"
            raise ModelError(f"{came}. Give it one: numpyro.sample({name!r}, ...).")
        if not is_latent(site):
            continue
        if is_inside(site, plate):
            raise ModelError(
                f"{name!r} is a latent variable inside the plate {plate!r}, with one value for each row. lwa "
                "reads some rows at a time: sum or integrate it out, as in dist.MixtureSameFamily, or move it out of "
                "the plate. If it is to be observed, pass data with a column for the argument in its obs=."
            )
        if site["fn"].support.is_discrete:
            hint = "Sum it out of the likelihood, as in dist.MixtureSameFamily."
            raise ModelError(f"{name!r} is a discrete latent variable, but lwa moves real numbers. {hint}")


def require_fixed_shapes(starts: SiteStarts, whole: Sites, single: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse parameters that are as long as the data."""
    for name, (values, _) in starts.items():
        few, all_rows, one = values.shape[1:], jnp.shape(whole[name]["value"]), single[name]
        if not few == all_rows == one:
            raise ModelError(
                f"{name!r} has the shape {all_rows} with all rows, {few} with a few and {one} with one. A parameter "
                "belongs to all rows: integrate it out, or pass its length in constants."
            )


def find_site_constraint(name: str, supports: Constraint, site: Site) -> Constraint:
    """Return the constraint of a latent site, None for real numbers; refuse one that changes with θ."""
    one, other = (jax.tree.map(lambda leaf, k=k: leaf[k], supports) for k in range(2))
    if not all(map(is_same, jax.tree.leaves(one), jax.tree.leaves(other))):
        raise ModelError(
            f"The support of {name!r} depends on other latent variables. Write it as a function of a variable that has "
            "a support of its own: numpyro.deterministic('x', scale * u) with u ~ dist.Uniform(0, 1)."
        )
    traced = site["fn"].support  # kept unless JAX traced its bounds: NumPyro maps its own best
    found = one if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(traced)) else traced
    found = getattr(found, "base_constraint", found)  # `lwa.Model` takes all leading axes as so many entries
    return None if found == numpyro_constraints.real else found


def name_axes(sites: Sites, names: Sequence[str]) -> dict[str, list[str]]:
    """Return names of the sites' axes, after their plates; others as ArviZ calls them."""
    named: dict[str, list[str]] = {}
    for name in names:
        site, shape = sites[name], jnp.shape(sites[name]["value"])
        axes = [f"{name}_dim_{i}" for i in range(len(shape))]
        batch = len(shape) - (site["fn"].event_dim if site["type"] == "sample" else 0)
        for frame in site["cond_indep_stack"]:
            at = batch + frame.dim
            if at >= 0 and shape[at] == frame.size and frame.name not in names:
                axes[at] = frame.name
                named[name] = axes
    return named
