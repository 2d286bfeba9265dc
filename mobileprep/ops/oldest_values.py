"""The values of tensors that TensorFlow 1.15 finds while it infers shapes: fewer than there are.

Source: ``ExtractConstantSubgraph`` and ``ShapeRefiner::ConstantPartialShape`` of TensorFlow 1.15.
"""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array
from mobileprep.ops.dims import UNKNOWN, concatenate, unknown_dims
from mobileprep.ops.static_values import StaticValues

_SPECIAL_MASKS = ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_MAX_DEPTH = 64


class OldestValues(StaticValues):
    """Values as 1.15 finds them.

    It does not find a value that needs one Shape, Rank or Size node's output twice, nor sizes of
    a partly known shape one by one.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
