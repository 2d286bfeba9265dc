"""Sound files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.wav import decode_wav, desired_sound
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import UNKNOWN
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("DecodeWav")
def decode_wav_samples(node: Node, contents: Array) -> tuple[Array, Array]:
    """The samples of a WAV file, float32 [samples, channels], and its rate in Hz.

    Attributes may demand a number of samples (cut, or filled up with zeros) and of channels
    (cut, or the last one repeated).
    """
    if contents.size != 1 or contents.dtype != object:
        message = "the contents of one file are needed"
        raise ValueError(message)
    samples, rate = decode_wav(bytes(contents.reshape(-1)[0]))
    count = node.attr_int("desired_samples", -1)
    channels = node.attr_int("desired_channels", -1)
    return desired_sound(samples, count, channels), np.array(rate, np.int32)


@shape_fn("DecodeWav")
def decode_wav_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Samples by channels, and the sample rate."""
    samples = args.node.attr_int("desired_samples", -1)
    channels = args.node.attr_int("desired_channels", -1)
    return [(max(samples, UNKNOWN), max(channels, UNKNOWN)), ()]


flop_rule("DecodeWav")(free)
