"""Damaged model files, which must load or raise one of our errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from google.protobuf import text_format

from mobileprep.errors import MobileprepError
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.freezing.freeze import freeze
from mobileprep.freezing.model import FreezeOptions
from mobileprep.freezing.source import load_source
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from tests.formats.checkpoint_writer import write_bundle

KINDS = ("graph", "text graph", "meta_graph", "text meta_graph", "saved_model", "text saved_model")
SEED = 5
# Damaged file, invalid graph, unknown op or type, and invalid size or path.
CODES = (4, 5, 6, 9)


def check_damaged(
    kind: str,
    graph: Graph,
    meta: pb.MetaGraphDef,
    tensors: dict[str, np.ndarray],
    output: str,
    folder: Path,
    *,
    turns: int,
) -> None:
    """Damage a model in a different way in each turn and freeze it if it still loads."""
    write_bundle(folder / "ckpt", tensors)
    form = kind.split()[-1]
    is_text = kind.startswith("text")
    suffix = ".pbtxt" if is_text else ".pb"
    path = folder / f"{form}{suffix}"
    if form == "graph":
        write_graph(path, graph, as_text=is_text)
    else:
        model = pb.SavedModel(saved_model_schema_version=1, meta_graphs=[meta])
        message = model if form == "saved_model" else meta
        text = text_format.MessageToString(message).encode()
        path.write_bytes(text if is_text else message.SerializeToString())
    whole = path.read_bytes()
    arguments = {form: folder if form == "saved_model" else path}
    random = np.random.default_rng(SEED)
    read = 0
    for turn in range(turns):
        damaged = bytearray(whole)
        if turn % 4:
            damaged[random.integers(len(damaged))] ^= 1 << random.integers(8)
        else:
            del damaged[random.integers(len(damaged)) :]
        path.write_bytes(damaged)
        try:
            freeze(load_source(**arguments, checkpoint=folder / "ckpt"), FreezeOptions((output,)))
            read += 1
        except MobileprepError as error:
            assert error.exit_code in CODES
    assert read > 0
