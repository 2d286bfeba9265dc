"""The files that a model reads, from the stage that froze it to those that run it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from mobileprep.core.files import atomic_writer, inside, read_bytes, write_bytes
from mobileprep.formats.arrays import read_arrays, write_arrays
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.runtime.engines.assets import with_found_assets


def write_assets(target: Path, files: Mapping[str, Path]) -> None:
    """Leave files, by the names that the graph has for them, for the stages that run it."""
    arrays = {name: np.frombuffer(read_bytes(path), np.uint8) for name, path in files.items()}
    with atomic_writer(target) as stream:
        write_arrays(stream, arrays)


@contextmanager
def with_assets(graph: Graph, assets: Path) -> Iterator[Graph]:
    """A graph with the files that it reads at hand, for as long as the context lasts."""
    files = read_arrays(assets)
    if not files:
        yield graph
        return
    with _folder_of(files) as folder:
        yield with_found_assets(graph, (folder,))


@contextmanager
def asset_folder(assets: Path) -> Iterator[Path]:
    """A folder with the files of such an archive in it, for as long as the context lasts."""
    with _folder_of(read_arrays(assets)) as folder:
        yield folder


@contextmanager
def _folder_of(files: Mapping[str, Array]) -> Iterator[Path]:
    import tempfile  # slow to import, and few graphs read files

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in files.items():
            write_bytes(inside(folder, file), content.tobytes())
        yield folder
