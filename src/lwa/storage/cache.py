"""What lwa need not make twice: where it is kept, and how compiled programs get there."""

import os
import platform
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

THEIR_OWN = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")
"""Who has set one of these has decided where JAX keeps programs, or that it keeps none."""
FROM = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
"""JAX keeps what took a second to compile, unless told otherwise; a fit is some sixty programs that took less."""
MOST_BYTES = 64 * 2**20
"""Of programs: a hundred fits of different shapes. Where there are more, the oldest half goes."""
DAMAGED = "Error reading persistent compilation cache entry"
"""What JAX warns of; it compiles anew then, but never writes over what it could not read."""


def user_cache() -> Path:
    """$LWA_CACHE, else a folder under $XDG_CACHE_HOME, else under ~/.cache."""
    own = os.environ.get("LWA_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lwa"


@contextmanager
def kept_programs() -> Iterator[Path | None]:
    """While a command runs, JAX, which must not be imported yet, keeps what it compiles for the commands to come.

    For the process alone, by its environment: a script that imports lwa is the user's, and so is JAX there. The folder,
    or None where the user has decided otherwise, or where nothing can be written.
    """
    folder = None if any(name in os.environ for name in THEIR_OWN) or "jax" in sys.modules else writable_folder()
    if folder is None:
        yield None
        return
    prune(folder)
    os.environ[THEIR_OWN[0]] = str(folder)
    os.environ.setdefault(FROM, "0")
    with mended(folder):
        yield folder


def writable_folder() -> Path | None:
    """For programs of this type of processor: others may share the home folder, and could not run them."""
    folder = user_cache() / "programs" / processor_digest()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # whoever writes there runs code here
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def processor_digest() -> str:
    """A name for its kind and all that it can do."""
    told = platform.machine() + platform.processor()
    with suppress(OSError):
        told += "".join(
            re.findall(r"^(?:model name|flags|Features)\s*:.*$", Path("/proc/cpuinfo").read_text(), re.M)[:2]
        )
    return blake2b(told.encode(), digest_size=6).hexdigest()


def prune(folder: Path) -> None:
    """Make room, oldest first; what another process takes away meanwhile is gone all the same."""
    with suppress(OSError):
        files = sorted(
            (one.stat().st_mtime, one.stat().st_size, one.path) for one in os.scandir(folder) if one.is_file()
        )
        size = sum(size for _, size, _ in files)
        if size <= MOST_BYTES:
            return
        for _, own, path in files:
            if size <= MOST_BYTES // 2:
                break
            os.unlink(path)
            size -= own


@contextmanager
def mended(folder: Path) -> Iterator[None]:
    """Where an entry cannot be read, after a crash for example, all go once the command is done, and nobody is told."""
    before, damaged = warnings.showwarning, False

    def show(message: Any, *args: Any, **options: Any) -> None:
        nonlocal damaged
        if str(message).startswith(DAMAGED):
            damaged = True
        else:
            before(message, *args, **options)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before
        if damaged:
            shutil.rmtree(folder, ignore_errors=True)
