"""Features of sounds, by custom operators that LiteRT's own builds have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.library import flexbuffer
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.types import need_float


@lowering("AudioSpectrogram")
def spectrogram(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """The custom operator AudioSpectrogram."""
    need_float(node, inputs)
    options: Mapping[str, int | bool] = {
        "window_size": node.attr_int("window_size"),
        "stride": node.attr_int("stride"),
        "magnitude_squared": node.attr_bool("magnitude_squared", False),
    }
    outputs = [(scope.output_shape(node), DType.FLOAT)]
    return scope.emit_custom("AudioSpectrogram", inputs, outputs, flexbuffer(options))[0]


@lowering("Mfcc")
def mfcc(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """The custom operator Mfcc, whose limits of frequency are whole numbers."""
    need_float(node, inputs[:1])
    upper = node.attr_float("upper_frequency_limit", 4000.0)
    lower = node.attr_float("lower_frequency_limit", 20.0)
    if not (upper.is_integer() and lower.is_integer()):
        reason = f"its limits of frequency are {lower:g} and {upper:g}, no whole numbers"
        raise CannotExpressError(reason, "round them")
    options: Mapping[str, int | bool] = {
        "upper_frequency_limit": int(upper),
        "lower_frequency_limit": int(lower),
        "filterbank_channel_count": node.attr_int("filterbank_channel_count", 40),
        "dct_coefficient_count": node.attr_int("dct_coefficient_count", 13),
    }
    outputs = [(scope.output_shape(node), DType.FLOAT)]
    return scope.emit_custom("Mfcc", inputs, outputs, flexbuffer(options))[0]
