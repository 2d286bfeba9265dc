"""Why mobile builds leave an op out, and what takes it off a graph."""

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
    "Assert": "remove_control_dependencies, then strip_unused_nodes, takes checks off",
    "PartitionedCall": "inline_partitionedcall puts what the function does in its place",
    "Print": "remove_nodes(op=Print) takes it off",
    "StatefulPartitionedCall": "inline_partitionedcall(all_calls=true) puts what the function does "
    "in its place",
    **dict.fromkeys(
        ("If", "StatelessIf", "StatelessWhile", "While"),
        "export with tf.compat.v1.disable_control_flow_v2() for Switch and Merge in its place",
    ),
    **dict.fromkeys(
        ("FusedPadConv2D", "FusedResizeAndPadConv2D"), "leave the transform out that fused it"
    ),
}
_BY_CAUSE: Final[dict[LeftOut, str]] = {
    "training": "freeze the model and name its outputs: strip_unused_nodes takes off what is for "
    "training",
    "image library": "decode in the app and feed the pixels: strip_unused_nodes with the decoder "
    "among the inputs",
    "not compiled": "",
}


def reason_left_out(op: str) -> LeftOut:
    """Why a mobile build by default does not compile an op."""
    if op in _PICTURES:
        return "image library"
    return "training" if _TRAINING.fullmatch(op) else "not compiled"


def removal(op: str) -> str:
    """What takes an op off a graph, in words; empty where nothing does."""
    return _BY_OP.get(op) or _BY_CAUSE[reason_left_out(op)]
