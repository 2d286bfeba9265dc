"""Registries filled by decorators, and discovery of the modules that fill them by file name."""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Final, Generic, TypeVar

from mobileprep.errors import InternalError

T = TypeVar("T")

_importing: Final = threading.RLock()


class Registry(Generic[T]):
    """Names to values, each name given once.

    Args:
        what: the kind of thing held, for messages ("op kernel").
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._entries: dict[str, T] = {}

    def register(self, *names: str) -> Callable[[T], T]:
        """A decorator that files its subject under every one of ``names``.

        Raises:
            InternalError: a name is taken already.
        """

        def file_under(entry: T) -> T:
            for name in names:
                if name in self._entries:
                    message = f"{self._what} {name!r} is registered twice"
                    raise InternalError(message)
                self._entries[name] = entry
            return entry

        return file_under

    def get(self, name: str) -> T | None:
        """The entry of that name, or None."""
        return self._entries.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)


def import_on_demand(module: str) -> ModuleType:
    """Import a module by its full name while other threads import theirs.

    One at a time: where two threads import modules of one package, each waiting for what the other
    has begun, Python gives one of them a module that is half there.
    """
    with _importing:
        return importlib.import_module(module)


def module_names(package: str) -> list[str]:
    """The public modules directly inside ``package``, by file name, sorted, none imported."""
    path = importlib.import_module(package).__path__
    return sorted(m.name for m in pkgutil.iter_modules(path) if not m.name.startswith("_"))
