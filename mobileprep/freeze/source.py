"""Loads whatever training left: a graph with what it takes to give its variables values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mobileprep.formats.checkpoint import Checkpoint, open_checkpoint
from mobileprep.freeze.restore import Source
from mobileprep.ir.files import read_graph
from mobileprep.ir.graph import Graph


@dataclass(frozen=True)
class Signature:
    """A named entry of a model: tensor names by argument name."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LoadedSource:
    """A model as it was saved.

    Args:
        graph: all of its nodes, training's included.
        where: the file it came from, for messages.
        checkpoint: the values of its variables, or None.
        signatures: by name.
        keys: checkpoint keys of variable nodes that the graph itself does not tell.
    """

    graph: Graph
    where: str
    checkpoint: Checkpoint | None = None
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    keys: Mapping[str, Source] = field(default_factory=dict)


def load_source(*, graph: Path, checkpoint: Path | None = None) -> LoadedSource:
    """Load a model.

    Args:
        graph: a GraphDef, binary or text.
        checkpoint: its checkpoint: a prefix, any file of the set, or its folder.

    Raises:
        CorruptFileError: a file is missing or damaged.
        InvalidGraphError: the graph breaks a rule.
    """
    opened = None if checkpoint is None else open_checkpoint(checkpoint)
    return LoadedSource(read_graph(graph), str(graph), opened)
