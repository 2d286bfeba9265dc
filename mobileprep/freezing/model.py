"""A model as training left it, before it is frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from mobileprep.formats.checkpoint import Checkpoint
from mobileprep.formats.dtypes import DType
from mobileprep.freezing.restore import SavedValue
from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.graph import Graph


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that a signature names, with what it says of it."""

    name: str
    dtype: DType = DType.INVALID
    shape: TensorShape = None


@dataclass(frozen=True)
class Signature:
    """A named entry of a model: tensors by argument name."""

    inputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    outputs: Mapping[str, TensorSpec] = field(default_factory=dict)


@dataclass(frozen=True)
class Asset:
    """A file that a graph reads, such as the vocabulary of a lookup table.

    Args:
        tensor: the name of the string tensor that holds its path.
        name: its name within the model's assets.
        path: where it lies now.
    """

    tensor: str
    name: str
    path: Path


@dataclass(frozen=True)
class LoadedSource:
    """A model as it was saved.

    Args:
        graph: all of its nodes, training's included.
        where: the file it came from, for messages.
        checkpoint: the values of its variables, or None.
        signatures: by name.
        restore_op: the op that restores a checkpoint in the graph, or an empty text.
        init_ops: the ops to run after the variables are there: they fill lookup tables.
        assets: files that it reads.
        keys: checkpoint keys of variable nodes that the graph itself does not tell.
        files: files that the graph reads from paths elsewhere, to be found by their names.
    """

    graph: Graph
    where: str
    checkpoint: Checkpoint | None = None
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    restore_op: str = ""
    init_ops: tuple[str, ...] = ()
    assets: tuple[Asset, ...] = ()
    keys: Mapping[str, SavedValue] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
