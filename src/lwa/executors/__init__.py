"""Who computes passes over all rows and cohorts of chains: this process, others on this machine, or a cluster."""

from lwa.executors.dask import Dask
from lwa.executors.executor import Executor, Serial, Work
from lwa.executors.processes import Processes

__all__ = ["Dask", "Executor", "Processes", "Serial", "Work"]
