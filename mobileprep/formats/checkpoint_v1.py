"""V1 checkpoints: tables whose first entry lists all tensors, and whose others hold slices.

Source: TensorFlow's ``tensor_slice_writer`` and ``tensor_slice_reader``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from mobileprep.errors import CorruptFileError
from mobileprep.formats.checkpoint_reader import Checkpoint
from mobileprep.formats.checkpoint_records import (
    StoredTensor,
    TensorEntry,
    check_versions,
    element_type,
    entry_of,
    parse,
)
from mobileprep.formats.dtypes import DType
from mobileprep.formats.mapped_file import view_file
from mobileprep.formats.ordered_code import slice_key
from mobileprep.formats.protos import checkpoint_pb2 as pb
from mobileprep.formats.protos import graph_pb2 as graph
from mobileprep.formats.slices import Array, Box, Extents, extents_of, read_only, shape_of_box
from mobileprep.formats.sstable import SortedTable
from mobileprep.formats.tensor_values import listed_values, packed_values
from mobileprep.formats.wire import Layout, Payload, payload_at, split_payloads

_META_KEY: Final = b""
_HINT: Final = "the file is damaged; copy or save it again"
_LAYOUT: Final = Layout({2: Layout({3: Layout(is_tensor=True)})})


class CheckpointV1(Checkpoint):
    """A V1 checkpoint of one table or of several.

    Numbers of type float32 and float64 are views on the file; others, which are stored in a
    longer form, are decoded one tensor at a time.

    Args:
        prefix: the path that its files have in common.
        files: its tables.

    Raises:
        CorruptFileError: a table is damaged, or tables disagree.
        UnsupportedError: a table is of a newer format.
    """

    def __init__(self, prefix: Path, files: tuple[Path, ...]) -> None:
        self._tables = {path: SortedTable(view_file(path), str(path)) for path in files}
        self._places: dict[tuple[str, Extents], Path] = {}
        tensors: dict[str, StoredTensor] = {}
        for path, table in self._tables.items():
            self._read_meta(path, table, tensors)
        super().__init__(prefix, files, tensors)

    def _read_meta(self, path: Path, table: SortedTable, tensors: dict[str, StoredTensor]) -> None:
        """Take in what a table says that it holds."""
        value = table.get(_META_KEY)
        if value is None:
            message = "does not begin with a list of tensors: it is no V1 checkpoint"
            raise CorruptFileError(message, "name the checkpoint by its prefix", str(path))
        meta = parse(pb.SavedTensorSlices, value, str(path)).meta
        check_versions(meta.versions, str(path))
        for tensor in meta.tensor:
            where = f"{path}, tensor {tensor.name[:80]!r}"
            entry = entry_of(tensor.type, tensor.shape, where)
            slices = tuple(extents_of(s) for s in tensor.slice)
            known = tensors.get(tensor.name)
            if known is not None and known.entry != entry:
                message = "has another type or shape than in another file of the checkpoint"
                raise CorruptFileError(message, _HINT, where)
            self._places.update({(tensor.name, extents): path for extents in slices})
            tensors[tensor.name] = StoredTensor(entry, (known.slices if known else ()) + slices)

    def _read_slice(self, name: str, extents: Extents, box: Box) -> Array:
        path = self._places[name, extents]
        where = f"{path}, tensor {name!r}"
        value = self._tables[path].get(slice_key(name, extents))
        if value is None:
            message = "a slice is listed that is not there"
            raise CorruptFileError(message, _HINT, where)
        skeleton, payloads = split_payloads(value, _LAYOUT, where)
        saved = parse(pb.SavedTensorSlices, skeleton, where).data
        if saved.name != name:
            message = f"the elements of {saved.name[:80]!r} stand in its place"
            raise CorruptFileError(message, _HINT, where)
        entry = TensorEntry(self.entry(name).dtype, shape_of_box(box))
        values = _values(saved.data, payloads, entry.dtype, where)
        if len(values) != entry.size:
            message = f"{len(values)} elements are there where {entry.size} are declared"
            raise CorruptFileError(message, _HINT, where)
        return read_only(values.reshape(entry.shape))

    def _release(self) -> None:
        self._tables.clear()


def _values(proto: graph.TensorProto, payloads: list[Payload], dtype: DType, where: str) -> Array:
    """The elements of a slice, 1-D; none where the field of their type is empty."""
    if proto.payload:
        values = packed_values(payload_at(payloads, proto.payload, where), where)
        return values if values.dtype == dtype.numpy else values[:0]
    listed = listed_values(proto, dtype)
    return listed if listed is not None else np.empty(0, dtype=element_type(dtype))
