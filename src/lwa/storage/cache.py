"""The user's cache: where it is, and how compiled programs get there."""

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
from typing import TextIO

USER_SETTINGS = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")
"""If one of these is set, the user has decided where JAX keeps programs, or that it keeps none."""
LEAST_SECONDS = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
"""By default JAX keeps programs that took a second to compile; a fit is some sixty programs that took less."""
MOST_PROGRAM_BYTES = 64 * 2**20
"""A hundred fits of different shapes. If there are more programs, the oldest half is removed."""
DAMAGED_ENTRY = "Error reading persistent compilation cache entry"
"""What JAX warns of. It then compiles again, but never overwrites what it could not read."""


def find_user_cache() -> Path:
    """Return $LWA_CACHE, else a folder under $XDG_CACHE_HOME, else one under ~/.cache."""
    own = os.environ.get("LWA_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lwa"


@contextmanager
def keep_programs() -> Iterator[Path | None]:
    """Have JAX keep what it compiles during a command for later commands. JAX must not be imported yet.

    This sets the environment of the process, so it is for commands only: in a script, JAX is the user's to set. Yield
    the folder, or None if the user has decided otherwise or nothing can be written.
    """
    decided = any(name in os.environ for name in USER_SETTINGS) or "jax" in sys.modules
    folder = None if decided else find_program_folder()
    if folder is None:
        yield None
        return
    remove_oldest(folder)
    os.environ[USER_SETTINGS[0]] = str(folder)
    os.environ.setdefault(LEAST_SECONDS, "0")
    with remove_if_damaged(folder):
        yield folder


def find_program_folder() -> Path | None:
    """Return the folder for programs of this type of processor: others may share the home folder."""
    folder = find_user_cache() / "programs" / digest_processor()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # programs that others write there would run here
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def digest_processor() -> str:
    """Return a name for the type of this processor and its features."""
    features = platform.machine() + platform.processor()
    with suppress(OSError):
        described = Path("/proc/cpuinfo").read_text()
        features += "".join(re.findall(r"^(?:model name|flags|Features)\s*:.*$", described, re.M)[:2])
    return blake2b(features.encode(), digest_size=6).hexdigest()


def remove_oldest(folder: Path) -> None:
    """Remove the oldest programs if there are too many; another process may remove some at the same time."""
    with suppress(OSError):
        found = [one for one in os.scandir(folder) if one.is_file()]
        files = sorted((one.stat().st_mtime, one.stat().st_size, one.path) for one in found)
        size = sum(size for _, size, _ in files)
        if size <= MOST_PROGRAM_BYTES:
            return
        for _, own, path in files:
            if size <= MOST_PROGRAM_BYTES // 2:
                break
            os.unlink(path)
            size -= own


@contextmanager
def remove_if_damaged(folder: Path) -> Iterator[None]:
    """Hide JAX's warning that an entry cannot be read, after a crash for example, and remove all entries at the end."""
    before, damaged = warnings.showwarning, False

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int,
        file: TextIO | None = None, line: str | None = None,
    ) -> None:  # fmt: skip
        nonlocal damaged
        if str(message).startswith(DAMAGED_ENTRY):
            damaged = True
        else:
            before(message, category, filename, lineno, file=file, line=line)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before
        if damaged:
            shutil.rmtree(folder, ignore_errors=True)
