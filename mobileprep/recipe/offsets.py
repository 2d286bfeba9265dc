"""Finds where a character of a scalar's value stands in the file, through quotes and folding."""

from __future__ import annotations

from collections.abc import Iterator

from mobileprep.recipe.tree import KeyPath, Place, Scalar


def inner_place(scalar: Scalar, offset: int, keys: KeyPath = ()) -> Place:
    """The place of ``scalar.text[offset]``, or of the scalar where that cannot be told.

    ``keys`` are appended to the scalar's key path.

    Folding and indentation change white space only, so the other characters of value and
    file are matched one by one. Escapes and replaced variables end the match.
    """
    place = scalar.place._replace(keys=(*scalar.place.keys, *keys))
    written = _written(place)
    last = (place.line, place.column)
    for index, character in enumerate(scalar.text):
        if character.isspace():
            continue
        line, column, found = next(written, (0, 0, ""))
        if found != character:
            return place
        if index >= offset:
            return place._replace(line=line, column=column)
        last = (line, column + 1)
    return place._replace(line=last[0], column=last[1])


def _written(place: Place) -> Iterator[tuple[int, int, str]]:
    """Line, column and character of what is not white space, from a scalar's first on."""
    lines = place.source.lines
    start = place.column - 1
    first = lines[place.line - 1]
    if first.startswith("&", start):
        start += len(first[start:].split(None, 1)[0])
        start += len(first[start:]) - len(first[start:].lstrip())
    if first[start : start + 1] in ("|", ">"):
        start = len(first)
    elif first[start : start + 1] in ("'", '"'):
        start += 1
    for number, line in enumerate(lines[place.line - 1 :], place.line):
        for column, character in enumerate(line[start:], start + 1):
            if not character.isspace():
                yield number, column, character
        start = 0
