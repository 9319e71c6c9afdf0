"""Types of the public names, which `__init__.py` imports when they are asked for."""

from lwa import executors as executors
from lwa import kernels as kernels
from lwa import models as models
from lwa import rivals as rivals
from lwa import subsets as subsets
from lwa import summaries as summaries
from lwa import targets as targets
from lwa.diagnostics.certificate import Certificate as Certificate
from lwa.diagnostics.certify import certify as certify
from lwa.errors import DataError as DataError
from lwa.errors import ExecutorError as ExecutorError
from lwa.errors import InputError as InputError
from lwa.errors import LwaError as LwaError
from lwa.errors import LwaWarning as LwaWarning
from lwa.errors import ModelError as ModelError
from lwa.errors import RunFolderError as RunFolderError
from lwa.models.arma import arma as arma
from lwa.models.from_numpyro import from_numpyro as from_numpyro
from lwa.models.from_pymc import from_pymc as from_pymc
from lwa.models.glm import glm as glm
from lwa.models.model import Model as Model
from lwa.result.result import Result as Result
from lwa.result.result import load as load
from lwa.rivals.comparison.compare import compare as compare
from lwa.rows.protocol import Rows as Rows
from lwa.run.budget import RowReads as RowReads
from lwa.run.sample import resume as resume
from lwa.run.sample import sample as sample

__version__: str
__all__: list[str]
