"""Why mobile builds leave an op out, and how to remove it from a graph."""

from __future__ import annotations

import re
from typing import Final, Literal

LeftOut = Literal["training", "image library", "not compiled"]

_PICTURES: Final = frozenset(
    {
        *("DecodeAndCropJpeg", "DecodeGif", "DecodeImage", "DecodeJpeg", "DecodePng"),
        *("EncodeJpeg", "EncodeJpegVariableQuality", "EncodePng", "ExtractJpegShape"),
    }
)
_TRAINING: Final = re.compile(
    r"(Assign|Restore|Save|Merge)V?\w*"
    r"|\w*(Apply|Backprop|Barrier|CandidateSampler|Checkpoint|Dataset|Grad|Iterator|Queue|Reader"
    r"|Summary|Variable)\w*"
    r"|CTCLoss\w*|L2Loss|\w*CrossEntropy\w*|VarHandleOp|VarIsInitializedOp"
)
_BY_OP: Final = {
    "Assert": "`remove_control_dependencies`, then `strip_unused_nodes`, removes the checks",
    "PartitionedCall": "`inline_partitionedcall` inlines the function",
    "Print": "`remove_nodes: {op: [Print]}` removes it",
    "StatefulPartitionedCall": "`inline_partitionedcall: {all_calls: true}` inlines the function",
    **dict.fromkeys(
        ("If", "StatelessIf", "StatelessWhile", "While"),
        "`freeze: {control_flow: lower}` replaces it with `Switch` and `Merge`",
    ),
    **dict.fromkeys(
        ("FusedPadConv2D", "FusedResizeAndPadConv2D"), "drop the transform that fused it"
    ),
}
_BY_CAUSE: Final[dict[LeftOut, str]] = {
    "training": "freeze the model and name its outputs, so that `strip_unused_nodes` removes "
    "the training ops",
    "image library": "decode in the app and feed the pixels: name the decoder among the inputs",
    "not compiled": "",
}


def reason_left_out(op: str) -> LeftOut:
    """Return why the default mobile build does not compile an op."""
    if op in _PICTURES:
        return "image library"
    return "training" if _TRAINING.fullmatch(op) else "not compiled"


def removal(op: str) -> str:
    """Return how to remove an op from a graph; empty if there is no known way."""
    return _BY_OP.get(op) or _BY_CAUSE[reason_left_out(op)]
