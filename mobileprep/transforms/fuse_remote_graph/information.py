"""What the op for remote processors carries: the part of the graph that it stands for.

The message is ``RemoteFusedGraphExecuteInfo`` of TensorFlow 1.15.
"""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.formats.dtypes import DType
from mobileprep.formats.wire import VARINT, delimited, encode_varint
from mobileprep.ir.graph import Graph
from mobileprep.ir.serde import graph_to_bytes

Record = tuple[DType, tuple[int, ...]]
"""A tensor's type and shape."""


def execute_info(
    part: Graph,
    executor: str,
    inputs: Sequence[tuple[str, Record | None]],
    outputs: Sequence[tuple[str, Record | None]],
) -> bytes:
    """The serialized message.

    Args:
        part: the nodes that the op stands for.
        executor: the name of the program that runs them.
        inputs: the tensors that go in, with their types and shapes where they are recorded.
        outputs: the tensors that come out, likewise.
    """
    return b"".join(
        [
            delimited(1, graph_to_bytes(part)),
            *(delimited(2, name.encode()) for name, _ in inputs),
            *(delimited(3, name.encode()) for name, _ in outputs),
            delimited(4, executor.encode()),
            *(delimited(6, _type_and_shape(record)) for _, record in inputs if record),
            *(delimited(7, _type_and_shape(record)) for _, record in outputs if record),
        ]
    )


def _type_and_shape(record: Record) -> bytes:
    dtype, shape = record
    sizes = b"".join(delimited(2, _number(1, size) if size else b"") for size in shape)
    return _number(1, dtype) + delimited(2, sizes)


def _number(field: int, value: int) -> bytes:
    return encode_varint(field << 3 | VARINT) + encode_varint(value)
