"""What is collected: examples in modules that need an extra, only where it is installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("pymc") else ["src/lwa/models/from_pymc.py", "src/lwa/models/pymc_graphs.py"]
