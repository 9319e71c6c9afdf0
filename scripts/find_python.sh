#!/bin/sh
# Print the path of a Python that can run lwa: PYTHON if it is set, else the first that works.
# A candidate is run, not only looked up: a pyenv shim exists for versions that are not selected and then fails.
# Shell built-ins only, so that the closing sentence appears even where PATH holds nothing.

works() {
    "$1" -c 'import sys
sys.version_info >= (3, 12) or sys.exit(1)
import ensurepip, venv
print(sys.executable)' </dev/null 2>/dev/null
}

if [ -n "${PYTHON:-}" ]; then
    works "$PYTHON" && exit 0
    echo "PYTHON=$PYTHON is not a Python 3.12 or newer with the venv module; lwa needs one:" \
        "pass its full path, for example make install PYTHON=/path/to/python3.12" >&2
    exit 1
fi

for candidate in python3 python python3.12 python3.13 python3.14; do
    works "$candidate" && exit 0
done

for candidate in "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/3.1[2-9].*/bin/python; do
    case ${candidate%/bin/python} in
        */3.1[2-9].*[!0-9]*) continue ;; # pre-releases and free-threaded builds (3.14.0rc1, 3.13.0t): few wheels
    esac
    works "$candidate" && exit 0
done

echo "lwa needs Python 3.12 or newer with the venv module and found none: install it with your package" \
    "manager or pyenv (pyenv install 3.12)," \
    "or point at one you have: make install PYTHON=/path/to/python3.12" >&2
exit 1
