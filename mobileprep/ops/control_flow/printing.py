"""Ops that tell what tensors hold: Print, PrintV2, StringFormat, Assert."""

from __future__ import annotations

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.tensor_summaries import edges, summary
from mobileprep.numerics.texts import one_text
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import no_outputs, scalars_only, unchanged
from mobileprep.ops.context import STREAMS, Printed, RunContext, context_kernel
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import shape_fn

_FILE = "file://"


@context_kernel("Print")
def print_tensors(context: RunContext, node: Node, x: Array, *data: Array) -> Array:
    """The first input as it is; the message and the data go to the printer."""
    first = node.attr_int("first_n", -1)
    if context.printer is None:
        return x
    if first >= 0:
        key = f"how often {node.name} printed"
        printed = context.resources.setdefault(key, 0)
        if printed >= first:
            return x
        context.resources[key] = printed + 1
    text = node.attr_str("message", "") + _all(node, "U", data)
    context.printer(Printed(node.name, "stderr", f"{text}\n"))
    return x


shape_fn("Print")(unchanged)


flop_rule("Print")(free)


def _all(node: Node, types: str, data: tuple[Array, ...], between: str = "") -> str:
    """Each tensor in brackets, as many elements as the node says."""
    count = node.attr_int("summarize", 3)
    pairs = zip(data, _types(node, types, data), strict=True)
    return between.join(f"[{summary(x, t, count)}]" for x, t in pairs)


def _types(node: Node, name: str, data: tuple[Array, ...]) -> list[DType]:
    """The types of some inputs: as the node says, or else as their arrays show."""
    told = [t.base for t in node.attr_dtypes(name)] if name in node.attrs else []
    if len(told) == len(data):
        return told
    return [dtype_from_numpy(x.dtype) or DType.STRING for x in data]


@context_kernel("PrintV2")
def print_text(context: RunContext, node: Node, text: Array) -> tuple[Array, ...]:
    """No outputs; the text goes to the printer.

    Raises:
        InvalidGraphError: the stream is none that TensorFlow knows.
        ValueError: there is more than one text.
    """
    stream = node.attr_str("output_stream", "stderr")
    if stream not in STREAMS and not stream.startswith(_FILE):
        message = f"there is no output stream {stream!r}"
        raise InvalidGraphError(message, f"TensorFlow knows {', '.join(STREAMS)} and {_FILE}PATH")
    told = one_text(text).decode("utf-8", "replace") + node.attr_str("end", "\n")
    if context.printer is not None:
        context.printer(Printed(node.name, stream, told))
    return ()


shape_fn("PrintV2")(no_outputs)


flop_rule("PrintV2")(free)


@kernel("StringFormat")
def string_format(node: Node, *data: Array) -> Array:
    """The template with each placeholder replaced by what the next input holds.

    Raises:
        ValueError: the template has not as many placeholders as there are inputs.
    """
    count = node.attr_int("summarize", 3)
    pieces = node.attr_str("template", "%s").split(node.attr_str("placeholder", "%s"))
    if len(pieces) != len(data) + 1:
        message = f"the template has {len(pieces) - 1} places for {len(data)} tensors"
        raise ValueError(message)
    types = _types(node, "T", data)
    shown = [edges(x, t, count) for x, t in zip(data, types, strict=True)]
    told = pieces[0] + "".join(s + p for s, p in zip(shown, pieces[1:], strict=True))
    return np.array(told.encode(), dtype=object)


shape_fn("StringFormat")(scalars_only)


flop_rule("StringFormat")(free)


@kernel("Assert")
def assert_true(node: Node, condition: Array, *data: Array) -> tuple[Array, ...]:
    """No outputs.

    Raises:
        InvalidGraphError: the condition is false; the message shows the data.
        ValueError: there is more than one condition.
    """
    if condition.ndim:
        message = f"the condition should be a scalar, not of shape {list(condition.shape)}"
        raise ValueError(message)
    if bool(condition):
        return ()
    message = f"assertion failed: {_all(node, 'T', data, ' ')}"
    raise InvalidGraphError(message, "check the shapes and values that are fed")


shape_fn("Assert")(no_outputs)


flop_rule("Assert")(free)
