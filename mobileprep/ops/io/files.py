"""Ops that read and write files: their shapes."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.common_shapes import no_outputs, scalars_only
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

shape_fn("Save", "SaveSlices", "SaveV2")(no_outputs)


@shape_fn("RestoreV2")
def restore_v2_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Tensors of any shape, or of the shape of the slice that is asked for."""
    return [None] * args.count()


shape_fn("MergeV2Checkpoints", "ReadFile", "SerializeTensor", "ShardedFilename", "WriteFile")(
    scalars_only
)


@shape_fn("ParseTensor")
def parse_tensor_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Whatever the text says."""
    return [None]
