"""How work reaches another process: as bytes of cloudpickle's, made once and unpacked once in each process.

Only work that this program made itself travels so, over connections that the user opened. No file of a user's is read
this way.
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

from lwa import __version__
from lwa.errors import ExecutorError, InputError
from lwa.executors.executor import Work

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Of glibc's mallopt: free bytes past which memory goes back, and bytes of an array that is the system's own affair."""
KEPT = 32
"""Objects that a process holds packed, or unpacked: models, rows and problems of the runs at hand."""


@dataclass(frozen=True)
class Parcel:
    """An object as bytes, or where these lie."""

    digest: str
    content: bytes | Path

    def unpacked(self) -> Any:
        """The object, the same one each time."""
        with _LOCK:
            if self.digest in _UNPACKED:
                _UNPACKED.move_to_end(self.digest)
            else:
                import cloudpickle

                content = self.content if isinstance(self.content, bytes) else self.content.read_bytes()
                _UNPACKED[self.digest] = cloudpickle.loads(content)
                while len(_UNPACKED) > KEPT:
                    _UNPACKED.popitem(last=False)
            return _UNPACKED[self.digest]


_LOCK = threading.RLock()
_UNPACKED: OrderedDict[str, Any] = OrderedDict()


def packed(what: Any, name: str = "") -> bytes:
    """As bytes; refuses what cannot be sent, and says what that is."""
    import cloudpickle

    try:
        return cloudpickle.dumps(what)
    except Exception as error:
        raise InputError(
            f"{name or type(what).__name__} cannot be sent to another process: {error}. Functions of a model may use "
            "modules, arrays and other functions, but no open file, lock or connection."
        ) from error


class Packing:
    """Parcels of the objects that are shared, each packed once."""

    def __init__(self, keep: Callable[[Parcel], Any] = lambda parcel: parcel) -> None:
        self.keep = keep
        self.made: OrderedDict[int, tuple[Any, Any]] = OrderedDict()  # objects are held, so that their ids stay theirs
        self.lock = threading.Lock()

    def of(self, objects: Sequence[Any]) -> tuple[Any, ...]:
        """What stands for each of them in a task."""
        with self.lock:
            return tuple(self._one(one) for one in objects)

    def _one(self, one: Any) -> Any:
        if id(one) not in self.made:
            content = packed(one)
            self.made[id(one)] = one, self.keep(Parcel(hashlib.sha256(content).hexdigest(), content))
            while len(self.made) > KEPT:
                self.made.popitem(last=False)
        self.made.move_to_end(id(one))
        return self.made[id(one)][1]


def rest_of(work: Work, piece: Any) -> bytes:
    """What a task carries of its own."""
    return packed((work.function, work.own, piece), getattr(work.function, "__name__", ""))


@cache
def versions() -> dict[str, str]:
    """Of what results depend on."""
    return {"lwa": __version__, **{name: version(name) for name in ("jax", "jaxlib", "numpy")}}


def carry_out(shared: Sequence[Parcel], rest: bytes, asked: dict[str, str]) -> Any:
    """In the other process: unpack and compute, in float64 as everywhere."""
    import cloudpickle
    import jax

    if versions() != asked:
        different = [f"{name} {here} there, {asked[name]} here" for name, here in versions().items()]
        raise ExecutorError(f"A worker has other versions: {', '.join(different)}. Install the same on all.")
    hold_on_to_memory()
    function, own, piece = cloudpickle.loads(rest)
    with jax.enable_x64(True):
        return function(*(parcel.unpacked() for parcel in shared), *own, piece)


@cache
def hold_on_to_memory() -> None:
    """Let this process keep what blocks of rows take, from one to the next.

    Dask starts workers with MALLOC_TRIM_THRESHOLD_ set to 64 KiB, which makes glibc ask the system for every temporary
    array anew: a Newton pass takes three times as long (`benchmarks/cluster.py`). These are glibc's own limits.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another system
        return
    for option, most in ((TRIM_THRESHOLD, 64 * 2**20), (MMAP_THRESHOLD, 32 * 2**20)):
        mallopt(option, most)
