"""Folders of files, a sample each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from mobileprep.core.files import read_file
from mobileprep.datasets.classes import labels_of_files
from mobileprep.datasets.decoder import Decoder
from mobileprep.datasets.listing import files_below
from mobileprep.datasets.singles import Label, Sample
from mobileprep.datasets.source import DataFiles, no_samples
from mobileprep.errors import CorruptFileError

_MOST_BYTES: Final = 1 << 28


class FileSamples:
    """The files of a folder; see ``OneByOne``.

    Args:
        files: the folder, and where labels are.
        suffixes: the ends of the names of files that count.
        decoder: how each becomes a sample.
        labelled: whether labels are asked for.

    Raises:
        AccuracyError: there are none, or labels are missing.
        CorruptFileError: the folder cannot be read.
    """

    def __init__(
        self, files: DataFiles, suffixes: Collection[str], decoder: Decoder, *, labelled: bool
    ) -> None:
        if not files.root.is_dir():
            message = f"{files.name} is no folder"
            raise CorruptFileError(message, "name the folder of the files", str(files.root))
        self._files = files
        self._decoder = decoder
        self._names: Sequence[str] = files_below(files.root, suffixes)
        if not self._names:
            raise no_samples(files.name, f"files that end in {', '.join(sorted(suffixes))}")
        self._labels: Sequence[Label] = ()
        if labelled:
            self._labels = labels_of_files(
                self._names, files.name, listed_in=files.labels, classes=files.classes
            )

    def __len__(self) -> int:
        return len(self._names)

    def name_of(self, index: int) -> str:
        """See ``OneByOne.name_of``."""
        return self._names[index]

    def sample(self, index: int) -> Sample:
        """See ``OneByOne.sample``."""
        name = self._names[index]
        data = read_file(self._files.root / name, limit=_MOST_BYTES)
        array = self._decoder.sample(data, f"{self._files.name}, {name}")
        label = self._labels[index] if self._labels else None
        feeds = {self._decoder.fed.name: array}
        return Sample(name, feeds, label, self._decoder.is_rotated(data))
