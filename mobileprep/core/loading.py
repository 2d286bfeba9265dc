"""Load code on demand: modules of registries, and Python files of the user.

Files of the user are trusted code, with all rights of the user. The guards are only against
accidents, such as a script's ``sys.exit(0)``, which would end a build as if it had succeeded.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pkgutil
import threading
import traceback
from collections.abc import Callable, Iterator
from importlib.machinery import SOURCE_SUFFIXES, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, Generic, NoReturn, TypeVar

from msgspec import Struct

from mobileprep.errors import InternalError, MobileprepError, UsageError

T = TypeVar("T")

_importing: Final = threading.RLock()


class Registry(Generic[T]):
    """A registry of unique names.

    Args:
        what: kind of the entries, for messages ("op kernel").
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._entries: dict[str, T] = {}

    def register(self, *names: str) -> Callable[[T], T]:
        """Return a decorator that registers its argument with each of these names."""

        def file_under(entry: T) -> T:
            for name in names:
                if name in self._entries:
                    message = f"{self._what} {name!r} is registered twice"
                    raise InternalError(message)
                self._entries[name] = entry
            return entry

        return file_under

    def get(self, name: str) -> T | None:
        """Return the entry of that name, or None."""
        return self._entries.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


def import_on_demand(module: str) -> ModuleType:
    """Import a module by its full name while other threads import theirs.

    Imports are serialized: if two threads import modules of one package and wait for each other,
    Python returns a partially initialized module to one of them.
    """
    with _importing:
        return importlib.import_module(module)


def module_names(package: str) -> list[str]:
    """Return the names of public modules in ``package``, sorted, without importing them."""
    path = importlib.import_module(package).__path__
    return sorted(m.name for m in pkgutil.iter_modules(path) if not m.name.startswith("_"))


class Author(Struct, frozen=True):
    """The role of a user's file in messages, and the class of errors for its exceptions.

    Args:
        what: role of the file, such as ``plugin``.
        error: class of the error.
        ended: description of the consequence if the file ends the program.
    """

    what: str
    error: type[MobileprepError]
    ended: str


def load_file(path: Path, name: str, author: Author) -> ModuleType:
    """Import a Python file as a new module."""
    loader = _SourceAlone(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or path.suffix not in SOURCE_SUFFIXES or not path.is_file():
        message = f"the {author.what} {path} does not exist, or is not a Python file"
        raise UsageError(message, "name a .py file")
    module = importlib.util.module_from_spec(spec)
    with blaming(path, author):
        loader.exec_module(module)
    return module


class _SourceAlone(SourceFileLoader):
    """A loader that compiles the file each time instead of using cached bytecode.

    Python detects changes by size and modification time in seconds, which two edits can have in
    common.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Return the current code of the file, without a bytecode cache."""
        return compile(self.get_data(self.path), self.path, "exec", dont_inherit=True)


@contextlib.contextmanager
def blaming(path: Path, author: Author) -> Iterator[None]:
    """Convert exceptions of the file's code, except interrupts, to errors with its line."""
    with _exits.caught() as attempts:
        try:
            yield
        except (MobileprepError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise _blamed(path, author, error) from error
    if attempts:
        raise _blamed(path, author, attempts[0])


def _blamed(path: Path, author: Author, error: BaseException) -> MobileprepError:
    """Return the error at the last line of the user's file in the traceback."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines.append(error.lineno)
    where = f"{path}:{lines[-1]}" if lines else str(path)
    if isinstance(error, SystemExit):
        message = f"the {author.what} ended the program, {author.ended}"
        hint = (
            "remove sys.exit, exit, and os._exit from it, or from code that runs when it is loaded"
        )
        return author.error(message, hint, where)
    return author.error(f"{type(error).__name__}: {error}", f"fix the {author.what}", where)


class _Exits:
    """A replacement of ``os._exit``, which bypasses ``except``, with a function that raises.

    Several threads can run user code at the same time; the last one to finish restores the
    function.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[list[SystemExit]] = []
        self._exit = os._exit

    @contextlib.contextmanager
    def caught(self) -> Iterator[list[SystemExit]]:
        """Record attempts to exit inside the block, and raise ``SystemExit``."""
        attempts: list[SystemExit] = []
        process = os.getpid()

        def refuse(status: int) -> NoReturn:
            if os.getpid() != process:  # A forked child process may exit.
                self._exit(status)
            error = SystemExit(status)
            for errors in self._running:
                errors.append(error)
            raise error

        with self._lock:
            if not self._running:
                self._exit = os._exit
                os._exit = refuse
            self._running.append(attempts)
        try:
            yield attempts
        finally:
            with self._lock:
                self._running = [r for r in self._running if r is not attempts]
                if not self._running:
                    os._exit = self._exit


_exits = _Exits()
