"""Files behind a URL, through fsspec."""

from typing import Any

from lwa.errors import DataError

_EXTRA = "pip install 'lwa[remote]'"


def filesystem(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path that it knows the URL by."""
    scheme = url.partition("://")[0]
    try:
        import fsspec
    except ImportError as error:
        raise DataError(
            f"'{url}' is a URL, and fsspec, which reads URLs, is not installed. Type {_EXTRA}, or pass a local path."
        ) from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise DataError(
            f"'{url}': fsspec needs one more library for '{scheme}://' ({error}). Install the library that it names "
            f"beside {_EXTRA}, or pass a local path."
        ) from error
    except (ValueError, OSError) as error:
        raise DataError(
            f"'{url}' cannot be opened: {error}. Pass a URL whose scheme fsspec knows, e.g. 's3://...' or "
            f"'https://...' ({_EXTRA}), or a local path."
        ) from error
    return system, str(path)


def is_pattern(url: str) -> bool:
    """Whether a URL stands for the files that match it; behind a web address, a question mark begins a query."""
    return any(sign in url for sign in ("*[" if url.startswith(("http://", "https://")) else "*?["))


def listed(url: str) -> list[str]:
    """All files at a URL: of a folder with all its subfolders, of a pattern, or the one file, by the name given."""
    system, path = filesystem(url)
    system.invalidate_cache()  # what was listed before may have changed
    if is_pattern(url):
        found = [name for name, info in system.glob(path, detail=True).items() if info["type"] == "file"]
    elif system.isfile(path):
        # Before all else: to find out whether a web address is a folder, fsspec reads the whole file for links.
        return [url]
    elif system.isdir(path):
        found = system.find(path)
    else:
        raise FileNotFoundError(url)
    return [system.unstrip_protocol(name) for name in sorted(found)]


def stamp(url: str) -> tuple[int, str]:
    """The size of a file in bytes, and a word that changes when the file does."""
    system, path = filesystem(url)
    info = system.info(path)
    # Web servers have a tag for that; ukey is what the other systems know (times, tags, versions).
    return int(info["size"] or 0), f"{system.ukey(path)} {info.get('ETag', '')}".strip()


def open_url(url: str) -> Any:
    """The bytes of a file, to be read."""
    system, path = filesystem(url)
    return system.open(path, "rb")
