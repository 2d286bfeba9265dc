"""Read MetaGraphDef and SavedModel files without copying large constants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from mobileprep.core.files import view_file
from mobileprep.core.paths import file_error, refuse_foreign
from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.formats.kinds import Kind, expect_kind, looks_like_text
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.formats.text_proto import text_to_wire
from mobileprep.formats.wire import (
    META_GRAPH_LAYOUT,
    SAVED_MODEL_LAYOUT,
    Layout,
    Payload,
    split_payloads,
)

SERVE: Final = "serve"
VARIABLES_PREFIX: Final = Path("variables") / "variables"
ASSETS_FOLDER: Final = "assets"
SAVED_MODEL_NAMES: Final = ("saved_model.pb", "saved_model.pbtxt")

M = TypeVar("M", bound=Message)


class MetaGraph(Struct, frozen=True):
    """A parsed MetaGraphDef.

    Args:
        proto: the message; its large constants are in ``payloads``.
        payloads: views of the file.
        file: name of the file, for messages.
    """

    proto: pb.MetaGraphDef
    payloads: list[Payload]
    file: str


def read_meta_graph(path: Path) -> MetaGraph:
    """Read a binary or text MetaGraphDef file."""
    proto, payloads = _read(path, pb.MetaGraphDef, META_GRAPH_LAYOUT, "MetaGraphDef")
    return MetaGraph(proto, payloads, str(path))


def read_saved_model(folder: Path, tags: Sequence[str] = ()) -> MetaGraph:
    """Read the MetaGraph of a SavedModel that has exactly the given tags.

    Args:
        folder: directory of the SavedModel.
        tags: the tags. Default: ``serve``, or those of the only MetaGraph.

    Raises:
        CorruptFileError: if the file is missing or damaged.
        UsageError: if no MetaGraph has the tags.
    """
    path = saved_model_file(folder)
    proto, payloads = _read(path, pb.SavedModel, SAVED_MODEL_LAYOUT, "SavedModel")
    sets = [frozenset(m.meta_info_def.tags) for m in proto.meta_graphs]
    if not sets:
        msg = "holds no MetaGraph"
        raise CorruptFileError(msg, "export the model again", str(path))
    tag_set = frozenset(tags or (SERVE,))
    if tag_set in sets:
        chosen = sets.index(tag_set)
    elif not tags and len(sets) == 1:
        chosen = 0
    else:
        there = " or ".join(sorted(repr(",".join(sorted(s))) for s in sets))
        message = f"no MetaGraph has the tags {','.join(sorted(tag_set))!r}"
        raise UsageError(message, f"there is {there}", str(path))
    return MetaGraph(proto.meta_graphs[chosen], payloads, str(path))


def read_saver(path: Path) -> pb.SaverDef:
    """Read a binary or text SaverDef file."""
    return _read(path, pb.SaverDef, Layout(), None)[0]


def saved_model_file(folder: Path) -> Path:
    """Return the path of a SavedModel's main file."""
    if folder.name in SAVED_MODEL_NAMES and folder.is_file():
        return folder
    for name in SAVED_MODEL_NAMES:
        if (folder / name).is_file():
            return folder / name
    if folder.is_file():
        raise file_error(folder)
    message = f"has no {' or '.join(SAVED_MODEL_NAMES)}"
    raise CorruptFileError(message, "name the folder of a SavedModel", str(folder))


def _read(
    path: Path, message: type[M], layout: Layout, kind: Kind | None
) -> tuple[M, list[Payload]]:
    data = view_file(path)
    if not data:
        msg = "is empty"
        raise CorruptFileError(msg, "export the model again", str(path))
    if kind is None:
        refuse_foreign(data, str(path))
    else:
        expect_kind(data, kind, str(path))
    if looks_like_text(data):
        data = text_to_wire(data, message, str(path))
    skeleton, payloads = split_payloads(data, layout, str(path))
    proto = message()
    try:
        proto.ParseFromString(skeleton)
    except DecodeError as error:
        text = f"is not a {message.DESCRIPTOR.name}"
        raise CorruptFileError(text, "the file is damaged or of another kind", str(path)) from error
    return proto, payloads
