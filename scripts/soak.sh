#!/bin/sh
# A hundred SIGKILLs over one run; the draws must be those of a run that was left alone. See soak.py.
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
JAX_COMPILATION_CACHE_DIR="${JAX_COMPILATION_CACHE_DIR:-$PWD/.cache/jax}"
JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
export JAX_COMPILATION_CACHE_DIR JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS
exec "$python" scripts/soak.py "$@"
