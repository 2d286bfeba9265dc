"""Names for new nodes."""

from __future__ import annotations

from collections.abc import Container, Iterable


def unique_name(base: str, *taken: Container[str]) -> str:
    """The name, with the first number behind it that makes it new."""
    name, number = base, 0
    while any(name in names for names in taken):
        number += 1
        name = f"{base}_{number}"
    return name


class FreshNames:
    """Gives names that are not taken, each once.

    Args:
        taken: the names that there are.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def name(self, base: str) -> str:
        """The name, or one like it; it is taken from now on."""
        found = unique_name(base, self._taken)
        self._taken.add(found)
        return found
