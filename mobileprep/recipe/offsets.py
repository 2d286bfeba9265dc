"""Finds where a character of a scalar's value stands in the file, through quotes and folding."""

from __future__ import annotations

from collections.abc import Iterator

from mobileprep.recipe.tree import KeyPath, Place, Scalar


class TextPlaces:
    """The places of the characters of one text scalar.

    Folding and indentation change white space only, so the other characters of value and
    file are matched one by one, once for all. Escapes and replaced variables end the match;
    from there on the scalar's own place stands for all.
    """

    def __init__(self, scalar: Scalar) -> None:
        self._place = scalar.place
        self._positions = list(_positions(scalar))

    def at(self, offset: int, keys: KeyPath = ()) -> Place:
        """The place of ``scalar.text[offset]``, or of what follows where that is white space.

        ``keys`` are appended to the scalar's key path.
        """
        place = self._place._replace(keys=(*self._place.keys, *keys))
        if offset >= len(self._positions):
            return place
        line, column = self._positions[offset]
        return place._replace(line=line, column=column)


def _positions(scalar: Scalar) -> Iterator[tuple[int, int]]:
    """Line and column of each character, and of the end, as far as value and file agree."""
    written = _written(scalar.place)
    pending = 1
    end = scalar.place.line, scalar.place.column
    for character in scalar.text:
        if character.isspace():
            pending += 1
            continue
        line, column, found = next(written, (0, 0, ""))
        if found != character:
            return
        for _ in range(pending):
            yield line, column
        pending = 1
        end = line, column + 1
    for _ in range(pending):
        yield end


def _written(place: Place) -> Iterator[tuple[int, int, str]]:
    """Line, column and character of what is not white space, from a scalar's first on."""
    lines = place.source.lines
    first = lines[place.line - 1]
    start = _skip_anchor(first, place.column - 1)
    if first[start : start + 1] in ("|", ">"):
        start = len(first)
    elif first[start : start + 1] in ("'", '"'):
        start += 1
    for number, line in enumerate(lines[place.line - 1 :], place.line):
        for column, character in enumerate(line[start:], start + 1):
            if not character.isspace():
                yield number, column, character
        start = 0


def _skip_anchor(line: str, start: int) -> int:
    if not line.startswith("&", start):
        return start
    anchor, _, rest = line[start:].partition(" ")
    return start + len(anchor) + 1 + len(rest) - len(rest.lstrip())
