"""The files that a model reads, from the stage that froze it to those that run it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from mobileprep.formats.arrays import read_arrays, write_arrays
from mobileprep.fsio import atomic_writer, inside, read_bytes, write_bytes


def write_assets(target: Path, files: Mapping[str, Path]) -> None:
    """Leave files, by the names that the graph has for them, for the stages that run it."""
    arrays = {name: np.frombuffer(read_bytes(path), np.uint8) for name, path in files.items()}
    with atomic_writer(target) as stream:
        write_arrays(stream, arrays)


@contextmanager
def asset_folder(assets: Path) -> Iterator[Path]:
    """A folder with the files of such an archive in it, for as long as the context lasts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in read_arrays(assets).items():
            write_bytes(inside(folder, file), content.tobytes())
        yield folder
