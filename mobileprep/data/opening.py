"""From files of any kind to samples of a model.

What reads a kind is imported where data of that kind is opened: pictures, sounds, records and
tables take twenty modules that a run on arrays never asks.
"""

from __future__ import annotations

import functools
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from mobileprep.core.files import unreadable
from mobileprep.core.paths import opened_file
from mobileprep.data.options import DATA_KINDS, DataKind
from mobileprep.data.singles import Chosen
from mobileprep.data.source import (
    Batch,
    DataFiles,
    Dataset,
    SampleChoice,
    SampleSource,
    Unread,
    files_below,
)
from mobileprep.errors import CorruptFileError
from mobileprep.runtime.sampling.inputs import FedTensor

_SUFFIXES: Final[dict[str, DataKind]] = {
    ".npz": "npz",
    ".npy": "npy",
    ".csv": "csv",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".py": "python",
}
_NPY: Final = b"\x93NUMPY"


def open_dataset(
    files: DataFiles,
    inputs: Sequence[FedTensor],
    choice: SampleChoice,
    *,
    labels: str = "label",
    labelled: bool = False,
    warn: Callable[[str], None] = lambda _: None,
) -> Dataset:
    """The samples that files hold for a model.

    They can be pickled, and are opened anew where they are taken to; there nobody is warned.
    """
    kind = files.kind or data_kind(files)
    if kind == "python":
        from mobileprep.data.generated import Generated

        found: Dataset = Generated(files, inputs, choice, labelled=labelled)
    else:
        source = _source(kind, files, inputs, labels, labelled=labelled)
        found = Chosen(files.name, source, choice, warn)
    again = functools.partial(open_dataset, files, inputs, choice, labels=labels, labelled=labelled)
    return _Opened(found, again)


class _Opened:
    """Samples, and how to open them elsewhere: maps of files and modules stay in a process."""

    def __init__(self, found: Dataset, again: Callable[[], Dataset]) -> None:
        self._found = found
        self._again = again

    def __reduce__(self) -> tuple[Callable[[], Dataset], tuple[()]]:
        return self._again, ()

    @property
    def name(self) -> str:
        """See ``Dataset.name``."""
        return self._found.name

    def __len__(self) -> int:
        return len(self._found)

    def batches(
        self,
        size: int,
        start: int = 0,
        stop: int | None = None,
        unread: list[Unread] | None = None,
    ) -> Iterator[Batch]:
        """See ``Dataset.batches``."""
        return self._found.batches(size, start, stop, unread)


def data_kind(files: DataFiles) -> DataKind:
    """What a file or folder holds, by its name or what lies in it."""
    if files.root.is_dir():
        return _kind_of_folder(files)
    named = _SUFFIXES.get(files.root.suffix.lower())
    if named is not None:
        return named
    try:
        with opened_file(files.root) as stream:
            if zipfile.is_zipfile(stream):
                return "npz"
            stream.seek(0)
            if stream.read(len(_NPY)) == _NPY:
                return "npy"
    except OSError as error:
        raise unreadable(files.root, error) from error
    message = f"it cannot be told what {files.name} holds"
    hint = f"say so: 'data: {{KIND: {files.name}}}' with {', '.join(DATA_KINDS)}"
    raise CorruptFileError(message, hint, str(files.root))


def _kind_of_folder(files: DataFiles) -> DataKind:
    from mobileprep.data.file_samples import PICTURES, SOUNDS

    found = files_below(files.root)
    suffixes = {name[name.rfind(".") :].lower() for name in found if "." in name}
    kinds: list[DataKind] = []
    if suffixes & PICTURES:
        kinds.append("pictures")
    if suffixes & SOUNDS:
        kinds.append("wav")
    # Parts of a TFRecord are called part-00000-of-00010, whatever goes before.
    if any(".tfrecord" in name or "-of-" in name for name in found):
        kinds.append("tfrecord")
    if len(kinds) == 1:
        return kinds[0]
    told = " and ".join(kinds) if kinds else "neither pictures nor sounds nor TFRecords"
    message = f"the folder {files.name} holds {told}"
    hint = f"name one kind: 'data: {{pictures: {files.name}}}'" if kinds else "name another folder"
    raise CorruptFileError(message, hint, str(files.root))


def _source(
    kind: DataKind, files: DataFiles, inputs: Sequence[FedTensor], labels: str, *, labelled: bool
) -> SampleSource:
    wanted = labels if labelled else None
    if kind in ("npz", "npy"):
        from mobileprep.data.array_samples import ArraySamples

        return ArraySamples(files, inputs, wanted)
    from mobileprep.data.singles import Singles

    if kind == "csv":
        from mobileprep.data.array_samples import CsvSamples

        return Singles(CsvSamples(files, inputs, labels, labelled=labelled))
    if kind == "tfrecord":
        from mobileprep.data.record_samples import RecordSamples

        return Singles(RecordSamples(files, inputs, wanted))
    from mobileprep.data.file_samples import FileSamples
    from mobileprep.data.source import only_input

    fed = only_input(inputs, files.reading.input, files.name)
    if kind == "wav":
        from mobileprep.data.file_samples import SOUNDS, SoundReading

        sounds = SoundReading(fed, files.reading, files.name)
        return Singles(FileSamples(files, SOUNDS, sounds, labelled=labelled))
    from mobileprep.data.file_samples import PICTURES, PictureReading

    pictures = PictureReading(fed, files.reading, files.name)
    return Singles(FileSamples(files, PICTURES, pictures, labelled=labelled))
