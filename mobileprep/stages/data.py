"""The data that a recipe names for a stage, opened for the stage's graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mobileprep.datasets.source import DataFiles
from mobileprep.errors import AccuracyError
from mobileprep.plan.spec import Files
from mobileprep.recipe.settings import Data


def data_files(files: Files, data: Data | None) -> DataFiles:
    """The files of a stage's data, as readers take them.

    Args:
        files: the files.
        data: how they are read; None where their content tells.
    """
    if data is None:
        return DataFiles(files.name, files.root)
    labels, classes = (None if f is None else f.path for f in (data.labels, data.classes))
    return DataFiles(files.name, files.root, data.kind, data.reading, labels, classes)


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Names a place of the recipe in errors about data that name none of their own."""
    try:
        yield
    except AccuracyError as error:
        if error.where:
            raise
        raise error.at(place) from error
