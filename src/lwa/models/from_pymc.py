"""PyMC models, adapted if PyMC is installed."""

from collections.abc import Sequence

from lwa.errors import InputError
from lwa.models.model import Model


def from_pymc(model: object, *, constants: Sequence[str] = ()) -> Model:
    """Return a PyMC model as a `lwa.Model` with the same log density, log p(θ) + Σ_k log f(Y_k|θ).

    Rows are in `pm.Data`, the observed ones too: every container as long as the observations is a column of rows, and
    others are constants. θ is a dict of the free variables, with PyMC's constraints; kernels move PyMC's own
    unconstrained values. Results include deterministic variables, except those that depend on the rows.

    Parameters
    ----------
    model
        A `pymc.Model`.
    constants
        Containers that are not rows, though as long as these.

    Returns
    -------
    Model
        For `lwa.sample(model, data)`, where data is a dict, or a table, with a column for each container of rows.

    Examples
    --------
    >>> import numpy as np, pymc as pm, lwa
    >>> rng = np.random.default_rng(0)
    >>> data = {"x": rng.normal(size=10_000), "y": rng.normal(size=10_000)}
    >>> with pm.Model() as regression:
    ...     x, y = pm.Data("x", data["x"]), pm.Data("y", data["y"])
    ...     slope = pm.Normal("slope", 0, 10)
    ...     sigma = pm.HalfNormal("sigma", 5)
    ...     observed = pm.Normal("observed", slope * x, sigma, observed=y)
    >>> model = lwa.from_pymc(regression)
    >>> model.scalar_names
    ['log(sigma)', 'slope']
    """
    try:
        from lwa.models.pymc_graphs import adapt_pymc
    except ImportError as error:
        raise InputError(f"PyMC is not installed ({error}). Type pip install 'lwa[pymc]'.") from error
    return adapt_pymc(model, constants)
