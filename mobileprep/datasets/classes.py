"""The labels of samples: names of classes, folders, and files that list them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mobileprep.core.files import read_bytes
from mobileprep.datasets.singles import Label
from mobileprep.datasets.source import NoLabelsError
from mobileprep.errors import AccuracyError, CorruptFileError, nearest_hint

_MOST_BYTES: Final = 1 << 28
_COLUMNS: Final = 2


class Classes:
    """What labels stand for.

    Args:
        names: of the classes, in the order of the model's outputs; None where labels are numbers.
        where: what lists them, for messages.
    """

    def __init__(self, names: Sequence[str] | None = None, where: str = "") -> None:
        self._numbers = None if names is None else {name: at for at, name in enumerate(names)}
        self._where = where

    def label(self, written: str, sample: str) -> Label:
        """What a label as it is written means: a class, a number or a text.

        Raises:
            AccuracyError: it is none of the classes.
        """
        if self._numbers is None:
            return number_or_text(written)
        found = self._numbers.get(written)
        if found is None:
            message = f"{sample} has the label {written!r}, which {self._where} does not list"
            raise AccuracyError(message, nearest_hint(written, self._numbers) or "add it there")
        return found


def read_classes(path: Path) -> Classes:
    """The classes that a file lists, one a line.

    Raises:
        AccuracyError: it lists none, or one twice.
        CorruptFileError: it cannot be read.
    """
    return Classes(class_names(path), path.name)


def class_names(path: Path) -> list[str]:
    """The names in a file of classes, one a line, in the order of the model's outputs.

    Raises:
        AccuracyError: it lists none, or one twice.
        CorruptFileError: it cannot be read.
    """
    names = [line.strip() for line in _text(path).splitlines()]
    while names and not names[-1]:
        names.pop()
    seen: dict[str, int] = {}
    for line, name in enumerate(names, start=1):
        if seen.setdefault(name, line) != line:
            message = f"the class {name!r} is listed in line {seen[name]} already"
            raise AccuracyError(message, "list each class once", f"{path}:{line}")
    if not names:
        raise AccuracyError("lists no classes", "write the name of one in each line", str(path))  # noqa: EM101
    return names


def folder_labels(names: Sequence[str], classes: Classes | None, data: str) -> list[Label]:
    """The label of each file by the first folder in its name.

    Args:
        names: of the files, with ``/``.
        classes: what the folders stand for; None numbers them in the order of their names.
        data: what messages call the folder above.

    Raises:
        AccuracyError: a file lies in no folder, or the folder is no class.
    """
    folders = [name.partition("/")[0] if "/" in name else "" for name in names]
    if "" in folders:
        first = names[folders.index("")]
        message = f"{data}: {folders.count('')} of {len(names)} files lie in no folder that would "
        message += f"be their label, the first of them {first}"
        raise NoLabelsError(message, "put each class in a folder, or give 'labels: FILE.csv'")
    known = classes or Classes(sorted(set(folders)), data)
    return [known.label(folder, name) for folder, name in zip(folders, names, strict=True)]


def listed_labels(
    path: Path, names: Sequence[str], classes: Classes | None, data: str
) -> list[Label]:
    """The label of each file by a CSV file with a row for each: the file's name and the label.

    A first row that names no file is taken for a heading.

    Raises:
        AccuracyError: a file has no row, a row names no file, or a label is no class.
        CorruptFileError: the CSV file cannot be read.
    """
    rows = _rows(path)
    known = set(names)
    if rows and next(iter(rows)) not in known:
        rows.pop(next(iter(rows)))
    strange = [name for name in rows if name not in known]
    if strange:
        message = f"{len(strange)} of {len(rows)} rows name no file of {data}, the first of them "
        message += repr(strange[0])
        raise AccuracyError(message, nearest_hint(strange[0], names), str(path))
    without = [name for name in names if name not in rows]
    if without:
        message = f"{data}: {len(without)} of {len(names)} files have no label in {path.name}, "
        message += f"the first of them {without[0]}"
        raise AccuracyError(message, "add a row for each", str(path))
    meaning = classes or Classes()
    return [meaning.label(rows[name], name) for name in names]


def number_or_text(written: str) -> Label:
    """A whole number, a fraction, or else the text."""
    for kind in (int, float):
        try:
            return kind(written)
        except ValueError:
            continue
    return written


def _rows(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        for line, row in enumerate(csv.reader(_text(path).splitlines()), start=1):
            if not row:
                continue
            if len(row) < _COLUMNS:
                message = "a row needs two columns: the file and its label"
                raise CorruptFileError(message, "write FILE,LABEL", f"{path}:{line}")
            found[row[0].replace("\\", "/").removeprefix("./")] = row[1].strip()
    except csv.Error as error:
        msg = f"is no CSV file: {error}"
        raise CorruptFileError(msg, "save it again", str(path)) from error
    return found


def _text(path: Path) -> str:
    try:
        return read_bytes(path, limit=_MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorruptFileError("is no UTF-8 text", "save it as UTF-8", str(path)) from error  # noqa: EM101


def labels_of_files(
    names: Sequence[str],
    data: str,
    *,
    listed_in: Path | None,
    classes: Path | None,
) -> Sequence[Label]:
    """The labels of files, by a CSV file or else by folders; see those two."""
    known = None if classes is None else read_classes(classes)
    if listed_in is not None:
        return listed_labels(listed_in, names, known, data)
    return folder_labels(names, known, data)


def as_label(value: object, classes: Classes, sample: str) -> Label:
    """A label out of a record: bytes and texts by their class, numbers as they are."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return classes.label(value, sample) if isinstance(value, str) else _number(value)


def _number(value: object) -> Label:
    assert isinstance(value, int | float)
    return value
