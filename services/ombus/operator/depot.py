"""Where checkpoints and archives are kept: a folder, or an object store through fsspec.

A file appears whole under its name or not at all, so what a reader finds is complete. An object
store publishes that way by itself; a folder does it by a rename.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from ombus_streams.runtime.folders import make_private

from ombus.operator.errors import Misaddressed, OperatorError
from ombus.settings import BadSetting

if TYPE_CHECKING:
    from collections.abc import Sequence

_PARTIAL: Final = ".partial"
_SCHEME: Final = "://"


class NotThere(Misaddressed):
    """Nothing lies under that name."""

    code = "not_there"

    def __init__(self, depot: str, name: str) -> None:
        super().__init__(f"{depot} has no {name}: look at what it holds, or name another place")


class DepotFailed(OperatorError):
    """The place said no, or nobody answers there."""

    code = "depot"

    def __init__(self, depot: str, error: Exception) -> None:
        said = " ".join(str(error).split()) or type(error).__name__
        super().__init__(f"{depot}: {said}: look at the place and its credentials, and try again")


class Depot(Protocol):
    """Files by name; ``/`` in a name is a folder where there are folders."""

    @property
    def name(self) -> str: ...

    def put(self, name: str, file: Path, *, may_link: bool = False) -> None:
        """Let ``name`` be a copy of ``file``; a link to it if it never changes and that can be."""
        ...

    def write(self, name: str, value: bytes) -> None: ...

    def fetch(self, name: str, file: Path) -> None:
        """Copy to ``file``. Raises: NotThere."""
        ...

    def read(self, name: str) -> bytes:
        """Return what lies there. Raises: NotThere."""
        ...

    def names(self, prefix: str) -> "Sequence[str]":
        """Return the names that begin with the folder ``prefix``, in order."""
        ...

    def delete(self, name: str) -> None:
        """Forget it. Idempotent."""
        ...


def depot_at(place: str) -> Depot:
    """Return the depot at a path or a URL (``s3://bucket/prefix``, ``gs://…``, ``memory://…``).

    Raises:
        BadSetting: the URL needs a package that is not installed.
    """
    if _SCHEME not in place or place.startswith(f"file{_SCHEME}"):
        return Folder(Path(place.removeprefix(f"file{_SCHEME}")))
    return ObjectStore(place)


class Folder:
    """A folder, made with the first file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def name(self) -> str:
        return str(self._folder)

    def put(self, name: str, file: Path, *, may_link: bool = False) -> None:
        with self._publishing(name) as partial:
            if may_link:
                try:
                    os.link(file, partial)
                    return
                except OSError:
                    pass  # Another file system, or too many links: then it is a copy.
            shutil.copyfile(file, partial)

    def write(self, name: str, value: bytes) -> None:
        with self._publishing(name) as partial:
            partial.write_bytes(value)

    def fetch(self, name: str, file: Path) -> None:
        try:
            shutil.copyfile(self._folder / name, file)
        except FileNotFoundError as error:
            raise NotThere(self.name, name) from error

    def read(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError as error:
            raise NotThere(self.name, name) from error

    def names(self, prefix: str) -> list[str]:
        found = (each for each in (self._folder / prefix).rglob("*") if each.is_file())
        return sorted(
            str(each.relative_to(self._folder)) for each in found if each.suffix != _PARTIAL
        )

    def delete(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    @contextmanager
    def _publishing(self, name: str) -> Iterator[Path]:
        target = self._folder / name
        make_private(target.parent)
        partial = target.with_name(target.name + _PARTIAL)
        partial.unlink(missing_ok=True)
        yield partial
        _sync(partial)
        partial.replace(target)
        _sync(target.parent)


class _Files(Protocol):
    """What fsspec's file systems have of use here."""

    def put_file(self, lpath: str, rpath: str) -> None: ...
    def pipe_file(self, path: str, value: bytes) -> None: ...
    def get_file(self, rpath: str, lpath: str) -> None: ...
    def cat_file(self, path: str) -> bytes: ...
    def find(self, path: str) -> list[str]: ...
    def rm_file(self, path: str) -> None: ...


class ObjectStore:
    """Anything fsspec knows by a URL; keys and endpoints come from the store's own environment."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ModuleNotFoundError as error:
            raise BadSetting(url, "needs an extra: pip install 'ombus[object-store]'") from error
        try:
            files, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise BadSetting(url, f"cannot be opened: {error}") from error
        self.name = url
        self._files, self._root = cast(_Files, files), str(root).rstrip("/")

    def put(self, name: str, file: Path, *, may_link: bool = False) -> None:
        with self._asked(name):
            self._files.put_file(str(file), self._path(name))

    def write(self, name: str, value: bytes) -> None:
        with self._asked(name):
            self._files.pipe_file(self._path(name), value)

    def fetch(self, name: str, file: Path) -> None:
        with self._asked(name):
            self._files.get_file(self._path(name), str(file))

    def read(self, name: str) -> bytes:
        with self._asked(name):
            return self._files.cat_file(self._path(name))

    def names(self, prefix: str) -> list[str]:
        try:
            with self._asked(prefix):
                found = self._files.find(self._path(prefix))
        except NotThere:
            return []
        start = len(self._root) + 1
        return sorted(str(each)[start:] for each in found)

    def delete(self, name: str) -> None:
        try:
            with self._asked(name):
                self._files.rm_file(self._path(name))
        except NotThere:
            return

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _asked(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise NotThere(self.name, name) from error
        except Exception as error:
            # Each store has errors of its own; what they say is all that is known.
            raise DepotFailed(self.name, error) from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
