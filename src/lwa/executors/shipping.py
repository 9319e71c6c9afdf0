"""How work travels to another process: pickled once by cloudpickle, and unpickled once per process.

Only work that this program made travels this way, over connections that the user opened. lwa never unpickles a user's
file.
"""

import ctypes
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cloudpickle
import jax

from lwa.errors import ExecutorError, InputError
from lwa.executors.executor import Work

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt: how many free bytes to keep, and from which size to ask the system for memory."""
MOST_HELD_OBJECTS = 32
"""Objects that a process holds packed, or unpacked: models, rows and problems of current runs."""


@dataclass(frozen=True)
class Parcel:
    """A pickled object, as bytes or as the path of a file that holds them."""

    digest: str
    content: bytes | Path

    def unpack(self) -> Any:
        """Return the object, the same one in each call."""
        with _UNPACKING:
            if self.digest not in _UNPACKED:
                content = self.content if isinstance(self.content, bytes) else self.content.read_bytes()
                _UNPACKED[self.digest] = cloudpickle.loads(content)
            return take_held(_UNPACKED, self.digest)


_UNPACKING = threading.RLock()
_UNPACKED: OrderedDict[str, Any] = OrderedDict()


def take_held[Key, Value](held: OrderedDict[Key, Value], key: Key) -> Value:
    """Return the object held under a key; if too many are held, drop those used longest ago."""
    held.move_to_end(key)
    while len(held) > MOST_HELD_OBJECTS:
        held.popitem(last=False)
    return held[key]


def pack(what: object, name: str = "") -> bytes:
    """Return an object as bytes; raise `InputError` if it cannot be sent."""
    try:
        return cloudpickle.dumps(what)
    except Exception as error:
        raise InputError(
            f"{name or type(what).__name__} cannot be sent to another process: {error}. Functions of a model may use "
            "modules, arrays and other functions, but no open file, lock or connection."
        ) from error


class Packing[Carried]:
    """Packs each shared object once. `keep` turns a parcel into what a task carries in its place."""

    def __init__(self, keep: Callable[[Parcel], Carried]) -> None:
        self.keep = keep
        self.made = OrderedDict[int, tuple[object, Carried]]()  # with the object, so that no other gets its id
        self.lock = threading.Lock()

    def pack_all(self, objects: Sequence[object]) -> tuple[Carried, ...]:
        """Return what a task carries for each object."""
        with self.lock:
            return tuple(self._pack(one) for one in objects)

    def _pack(self, one: object) -> Carried:
        if id(one) not in self.made:
            content = pack(one)
            self.made[id(one)] = one, self.keep(Parcel(hashlib.sha256(content).hexdigest(), content))
        return take_held(self.made, id(one))[1]


def pack_task(work: Work, piece: object) -> bytes:
    """Return what a task carries besides the shared objects: the function, its own arguments and the piece."""
    return pack((work.function, work.own, piece), getattr(work.function, "__name__", ""))


@cache
def find_versions() -> dict[str, str]:
    """Return the versions of the packages that results depend on."""
    return {name: version(name) for name in ("lwa", "jax", "jaxlib", "numpy")}


def run_task(shared: Sequence[Parcel], rest: bytes, asked: dict[str, str]) -> Any:
    """Unpack and compute a task in the other process, in float64."""
    here = find_versions().items()
    if different := [f"{name} {found} instead of {asked[name]}" for name, found in here if found != asked[name]]:
        raise ExecutorError(f"A worker has {', '.join(different)}. Install the same versions on all workers.")
    keep_freed_memory()
    function, own, piece = cloudpickle.loads(rest)
    with jax.enable_x64(True):
        return function(*(parcel.unpack() for parcel in shared), *own, piece)


@cache
def keep_freed_memory() -> None:
    """Let this process reuse the memory of one block of rows for the next.

    Dask starts workers with MALLOC_TRIM_THRESHOLD_ set to 64 KiB. glibc then asks the system for every temporary array
    anew, and a Newton pass takes three times as long (`benchmarks/cluster.py`). These are glibc's own upper limits.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another system
        return
    for option, most in ((TRIM_THRESHOLD, 64 * 2**20), (MMAP_THRESHOLD, 32 * 2**20)):
        mallopt(option, most)
