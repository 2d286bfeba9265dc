"""The values of variables, found in a checkpoint and checked against the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mobileprep.errors import ArtifactError, InvalidGraphError, did_you_mean
from mobileprep.formats.checkpoint import Checkpoint
from mobileprep.formats.dtypes import DType
from mobileprep.freeze.options import FreezeOptions
from mobileprep.freeze.restore import Source, candidates, restored_from
from mobileprep.freeze.source import LoadedSource
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Tensor

_PROTOBUF_LIMIT = (1 << 31) - 1
_MOVING_AVERAGE = "ExponentialMovingAverage"
_NAMED_AT_MOST = 10


@dataclass(frozen=True)
class Values:
    """Tensors by variable node, the checkpoint keys they have, and what to tell the user."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
