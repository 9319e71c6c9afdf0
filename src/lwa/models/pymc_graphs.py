"""PyMC's graphs of log probabilities as JAX functions, with rows in place of `pm.Data`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc
from jax import Array
from jaxtyping import PyTree
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import Transform
from pymc.distributions.transforms import log, logodds
from pymc.initial_point import make_initial_point_fn
from pymc.logprob.basic import transformed_conditional_logp
from pymc.logprob.utils import replace_rvs_by_values
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.mode import JAX
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor import constant
from pytensor.tensor.random.op import RandomVariable

from lwa.errors import ModelError
from lwa.models.check import report_user_errors
from lwa.models.model import Model
from lwa.models.rowwise import ROWWISE_ROWS, Adapter, find_derived_names, quote_names, take_few_and_last
from lwa.rows import as_rows


@contextmanager
def keep_precision() -> Iterator[None]:
    """Restore JAX's precision: PyTensor sets it for the whole process when its JAX functions are imported."""
    with ThreadPoolExecutor(1) as another:  # a new thread sees what is set for the process, whatever `with` we are in
        before = another.submit(lambda: jax.config.jax_enable_x64).result()
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)  # type: ignore[no-untyped-call]


with keep_precision():
    from pytensor.link.jax.dispatch.basic import jax_funcify

PYTENSOR_REWRITES = JAX.including("local_check_parameter_to_ninf_switch").optimizer  # type: ignore[no-untyped-call]
"""PyTensor's for JAX, which cannot raise on values: the density is zero if a parameter is out of its range."""

report_graph_errors = partial(report_user_errors, "The graph of the PyMC model")
type Graph = Any
"""A variable of PyTensor."""
type Container = Any
"""A `pm.Data`: a variable that holds an array."""
type GraphFunction = Callable[..., Sequence[Array]]
"""A graph as a JAX function of its inputs."""


def adapt_pymc(model: object, constants: Sequence[str]) -> Model:
    """Return a PyMC model as a `lwa.Model`; `lwa.from_pymc` documents it."""
    if not isinstance(model, pymc.Model):
        raise ModelError(f"model is of type {type(model).__name__}. Pass a pymc.Model.")
    refuse_pymc_variables(model)
    columns = find_columns(model, constants)
    few, last = take_few_and_last(as_rows({name: held.get_value(borrow=True) for name, held in columns.items()}))
    start = make_initial_point_fn(model=model, return_transformed=False)(0)
    init = {variable.name: np.asarray(start[variable.name], np.float64) for variable in model.free_RVs}
    with jax.enable_x64(True):
        adapted = PymcAdapter.build(model, columns, last)
        require_any_row_count(adapted, init, few, len(next(iter(columns.values())).get_value(borrow=True)))
        derived = find_derived_names(adapted, init, few, last, report_graph_errors)
        supports = {variable.name: find_pymc_constraint(model, variable) for variable in model.free_RVs}
    axes = {name: dims for name, dims in model.named_vars_to_dims.items() if name in (*init, *derived)}
    named = {name: [dim or f"{name}_dim_{i}" for i, dim in enumerate(dims)] for name, dims in axes.items()}
    used = {dim for dims in named.values() for dim in dims}
    return Model(
        adapted.log_likelihood, adapted.log_prior, init,
        constraints={name: support for name, support in supports.items() if support is not None}, dims=named,
        coords={name: list(labels) for name, labels in model.coords.items() if labels and name in used},
        derived=partial(adapted.derived, tuple(derived)) if derived else None,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class PymcAdapter(Adapter):
    """A PyMC model as functions of θ and rows."""

    terms: GraphFunction  # of each observed variable, elementwise
    prior: GraphFunction
    values: GraphFunction  # of the deterministic variables
    parameters: tuple[str, ...]
    columns: tuple[str, ...]
    deterministics: tuple[str, ...]
    row: PyTree  # one row, for what does not depend on rows

    @classmethod
    def build(cls, model: pymc.Model, columns: Mapping[str, Container], row: PyTree) -> "PymcAdapter":
        """Return functions of constrained values: `lwa.Model` maps to them, and adds the Jacobian."""
        inputs = {name: held.type(name=name) for name, held in columns.items()}
        replaced = {held: inputs[name] for name, held in columns.items()}
        free, observed = model.free_RVs, model.observed_RVs
        values = {variable: variable.type(name=variable.name) for variable in free}
        given = values | {variable: model.rvs_to_values[variable] for variable in observed}

        def function(outputs: Sequence[Graph]) -> GraphFunction:
            return compile_graph([*values.values(), *inputs.values()], clone_replace(list(outputs), replaced))

        def valued(graphs: Sequence[Graph]) -> list[Graph]:
            return list(replace_rvs_by_values(list(graphs), rvs_to_values=given)) if graphs else []

        log_density = partial(transformed_conditional_logp, rvs_to_values=given, rvs_to_transforms={})
        prior = [*log_density(free), *valued(model.potentials)]
        return cls(
            terms=function(log_density(observed)), prior=function([sum(part.sum() for part in prior)]),
            values=function(valued(model.deterministics)), parameters=tuple(variable.name for variable in free),
            columns=tuple(columns), deterministics=tuple(variable.name for variable in model.deterministics), row=row,
        )  # fmt: skip

    def log_likelihood(self, theta: PyTree, rows: PyTree) -> Array:
        """Return the terms of what is observed, one per row."""
        found = self.call(self.terms, theta, rows)
        total = sum(terms.sum(range(1, terms.ndim)) for terms in map(jnp.asarray, found))
        return jnp.asarray(total).astype(jnp.result_type(*jax.tree.leaves(theta)))

    def log_prior(self, theta: PyTree, rows: PyTree = None) -> Array:
        """Return the log density of all free variables and potentials."""
        (total,) = self.call(self.prior, theta, self.row if rows is None else rows)
        return jnp.asarray(total).astype(jnp.result_type(*jax.tree.leaves(theta)))

    def deterministic(self, theta: PyTree, rows: PyTree) -> dict[str, Array]:
        """Return the values of the deterministic variables."""
        return dict(zip(self.deterministics, map(jnp.asarray, self.call(self.values, theta, rows)), strict=True))

    def call(self, function: GraphFunction, theta: PyTree, rows: PyTree) -> Sequence[Array]:
        """Call a function of PyTensor's, which takes arrays in order."""
        if missing := [name for name in self.columns if name not in rows]:
            raise ModelError(
                f"The rows have no column {missing[0]!r}; they have {quote_names(rows)}. Pass data with a column for "
                f"each pm.Data of rows: {quote_names(self.columns)}."
            )
        held = [jnp.asarray(theta[name]) for name in self.parameters]
        return function(*held, *(jnp.asarray(rows[name]) for name in self.columns))


def compile_graph(inputs: Iterable[Graph], outputs: Sequence[Graph]) -> GraphFunction:
    """Return PyTensor's graph as a JAX function of its inputs, which returns a sequence."""
    if not outputs:
        return lambda *_: ()
    shared: list[Container] = [one for one in ancestors(outputs) if isinstance(one, SharedVariable)]
    fixed = clone_replace(list(outputs), {one: constant(one.get_value(borrow=True)) for one in shared})
    graph = FunctionGraph(inputs=list(inputs), outputs=fixed, clone=True)
    PYTENSOR_REWRITES.rewrite(graph)
    return jax_funcify(graph)


class PymcSupport(constraints.Constraint):  # type: ignore[misc]
    """The support of a PyMC variable, by PyMC's own map."""

    def __init__(self, event_dim: int, transform: "PymcTransform") -> None:
        self.event_dim, self.transform = event_dim, transform

    def tree_flatten(self) -> tuple[tuple[()], object]:
        """Flatten to no arrays: nothing of it is one."""
        return (), ((), {"event_dim": self.event_dim, "transform": self.transform})


class PymcTransform(Transform):  # type: ignore[misc]
    """PyMC's map of a variable from real numbers, of the one shape that the variable has."""

    def __init__(self, maps: tuple[GraphFunction, ...], free_shape: tuple[int, ...], shape: tuple[int, ...]) -> None:
        self.maps, self.free_shape, self.shape = tuple(maps), tuple(free_shape), tuple(shape)

    def __call__(self, x: Array) -> Array:
        """Return the variable at `x`."""
        return self.map(0, x, self.free_shape)

    def _inverse(self, y: Array) -> Array:
        return self.map(1, y, self.shape)

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: object = None) -> Array:
        """Return log |∂y/∂x|, entry by entry if the map is."""
        return self.map(2, x, self.free_shape)

    def map(self, which: int, values: Array, shape: tuple[int, ...]) -> Array:
        """Apply one of the maps over any axes before those of the variable."""
        lead = values.shape[: values.ndim - len(shape)]
        found = jax.vmap(lambda one: self.maps[which](one)[0])(values.reshape(-1, *shape))
        return found.reshape(*lead, *found.shape[1:])

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the real numbers."""
        return self.free_shape

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the variable."""
        return self.shape

    def tree_flatten(self) -> tuple[tuple[()], object]:
        """Flatten to no arrays: nothing of it is one."""
        return (), ((), {"maps": self.maps, "free_shape": self.free_shape, "shape": self.shape})


biject_to.register(PymcSupport, lambda support: support.transform)


def find_pymc_constraint(model: pymc.Model, variable: Graph) -> PymcSupport | str | None:
    """Return the constraint of a free variable, None for real numbers; refuse one that depends on other variables."""
    transform = model.rvs_to_transforms[variable]
    if transform is None:
        return None
    if type(transform) in (type(log), type(logodds)):
        return "positive" if type(transform) is type(log) else "unit_interval"
    free, inputs = model.rvs_to_values[variable], variable.owner.inputs
    constrained = variable.type()
    graphs = (
        (free, transform.backward(free, *inputs)),
        (constrained, transform.forward(constrained, *inputs)),
        (free, transform.log_jac_det(free, *inputs)),
    )
    for _, graph in graphs:
        others = [one.name for one in ancestors([graph]) if one.owner and isinstance(one.owner.op, RandomVariable)]
        if others:
            raise ModelError(
                f"The support of {variable.name!r} depends on {quote_names(others)}. Write it as a function of a "
                "variable that has a support of its own: pm.Deterministic('x', scale * u) with u ~ pm.Uniform(0, 1)."
            )
    point, shape = model.initial_point(0)[free.name], tuple(variable.shape.eval())
    maps = tuple(compile_graph([taken], [graph]) for taken, graph in graphs)
    return PymcSupport(len(shape), PymcTransform(maps, np.shape(point), shape))


def refuse_pymc_variables(model: pymc.Model) -> None:
    """Refuse variables that no θ of fixed length can hold, or no kernel can move."""
    if not model.observed_RVs:
        raise ModelError("No variable of the model is observed. Pass observed=pm.Data('y', y) to a variable in it.")
    for variable in model.observed_RVs:
        if variable.name.endswith("_observed") and f"{variable.name[:-9]}_unobserved" in model.named_vars:
            raise ModelError(
                f"{variable.name[:-9]!r} is partly observed, and PyMC imputes what is missing: one parameter for each "
                "such row. Leave those rows out, or integrate what is missing out of the likelihood."
            )
        within = ancestors([model.rvs_to_values[variable], *variable.owner.inputs])
        random = any(one.owner and type(one.owner.op).__name__ == "MinibatchIndexRV" for one in within)
        if random or isinstance(variable.owner.op, MinibatchRandomVariable):
            raise ModelError(
                f"{variable.name!r} is observed through pm.Minibatch or total_size, but lwa draws rows by itself. Pass "
                "observed=pm.Data('y', y), all rows of it."
            )
    if discrete := [value.name for value in model.discrete_value_vars]:
        hint = "Sum it out of the likelihood, as in pm.Mixture."
        raise ModelError(f"{discrete[0]!r} is a discrete free variable, but lwa moves real numbers. {hint}")


def find_columns(model: pymc.Model, constants: Sequence[str]) -> dict[str, Container]:
    """Return the containers of rows by name: those that are as long as what is observed."""
    held = {one.name: one for one in model.data_vars}
    if unknown := [name for name in constants if name not in held]:
        raise ModelError(f"constants names {unknown[0]!r}, which is not a pm.Data. Valid: {quote_names(held)}.")
    lengths = {}
    for variable in model.observed_RVs:
        value = model.rvs_to_values[variable]
        within = [name for name, one in held.items() if one in set(ancestors([value])) and name not in constants]
        if not within:
            raise ModelError(
                f"What {variable.name!r} observes is in no pm.Data, so it cannot take other rows. Pass observed="
                f"pm.Data('{variable.name}_rows', y), and its covariates as pm.Data too."
            )
        lengths[variable.name] = len(held[within[0]].get_value(borrow=True))
    if len(set(lengths.values())) > 1:
        raise ModelError(
            f"Variables are observed in different numbers of rows: {dict(sorted(lengths.items()))}. A row is one "
            "observation of each: pass containers of one length."
        )
    count = next(iter(lengths.values()))
    values = {name: one.get_value(borrow=True) for name, one in held.items() if name not in constants}
    return {name: held[name] for name, value in values.items() if value.ndim and len(value) == count}


def require_any_row_count(adapted: PymcAdapter, init: Mapping[str, PyTree], few: PyTree, count: int) -> None:
    """Refuse a model that works on all rows only."""
    number = min(ROWWISE_ROWS, count)
    as_long = [name for name, value in init.items() if count in np.shape(value)]
    hint = f" {quote_names(as_long)} has an entry for each row: integrate it out." if as_long else ""
    try:
        with report_graph_errors(f"{number} of {count} rows"):
            terms = jax.eval_shape(adapted.log_likelihood, dict(init), few)
    except ModelError as error:
        raise ModelError(
            f"{error}\n  A model must work on any number of rows.{hint} Put all that has their length into pm.Data."
        ) from error.__cause__
    if terms.shape != (number,):
        raise ModelError(
            f"The observed variables have log probabilities of shape {terms.shape} for {number} rows of data; one per "
            f"row is expected.{hint} Put all that has the length of the rows into pm.Data, and leave it out of shapes."
        )
