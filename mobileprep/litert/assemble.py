"""Assemble a program into the records of a file: number values, and store constants in buffers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import (
    NARROW,
    LiteTensor,
    ModelRecord,
    OperatorCode,
    OperatorRecord,
    Quantization,
    SignatureRecord,
    SubGraphRecord,
    packed,
    text_bytes,
)
from mobileprep.graph.tensor import Array
from mobileprep.litert.flex import flex_ops
from mobileprep.litert.program import Op, Port, Program, Value, builtin, reshape
from mobileprep.litert.ranks import MAX_RANKS, exceeds_rank, with_convolutions, with_supported_ranks
from mobileprep.litert.refusals import GIVE_SHAPES, Refusal, refused
from mobileprep.litert.types import NAMES, initialized
from mobileprep.litert.versions import (
    operator_release,
    operator_version,
    release_order,
    runtime_version,
)
from mobileprep.ops.numerics.texts import texts

SIGNATURE: Final = "serving_default"
"""The conventional name of a file's only signature."""

_NAMES: Final = {**NAMES, DType.INT4: "INT4"}
RUNTIME: Final = "min_runtime_version"
"""The metadata entry with the oldest release that can run a file."""

_DESCRIPTION: Final = "written by mobileprep"
# First release whose dense layers support per-channel scales.
_DENSE_CHANNELS: Final = (2, 17)
# Operators that no release runs with more dimensions.
_LIMITED: Final = ("PAD", "PADV2", "BATCH_MATMUL")
# `2.14` includes all its patch releases.
_ANY_PATCH: Final = 1 << 16


# Options with the indices of an operator's subgraphs, in order.
_INDICES: Final[Mapping[str, tuple[str, ...]]] = {
    "WhileOptions": ("cond_subgraph_index", "body_subgraph_index"),
    "IfOptions": ("then_subgraph_index", "else_subgraph_index"),
    "CallOnceOptions": ("init_subgraph_index",),
}


def assembled(main: Program, min_runtime: str = "", where: str = "") -> ModelRecord:
    """Assemble a program into the records of a file.

    Args:
        main: the program.
        min_runtime: the oldest release that must run the file, such as ``2.14``; empty for any.
        where: the location of the graph, for messages.

    Raises:
        InexpressibleError: an operator has too many dimensions, or requires a newer release.
    """
    buffers = _Buffers()
    if min_runtime and release_order(min_runtime) < _DENSE_CHANNELS:
        main = main.mapped(with_convolutions)
    programs = _listed(initialized(main.mapped(with_supported_ranks).mapped(with_safe_loops)))
    ops = [op for program in programs for op in program.ops]
    refusals = [refusal for op in ops if (refusal := _refusal(op, min_runtime)) is not None]
    if refusals:
        raise refused(refusals, where)
    subgraphs = tuple(_Numbered(program, buffers).record() for program in programs)
    version = runtime_version(ops)
    metadata = ((RUNTIME, version.encode().ljust(16, b"\0")),)
    first = subgraphs[0]
    signature = SignatureRecord(
        SIGNATURE,
        tuple((p.name, i) for p, i in zip(main.inputs, first.inputs, strict=True)),
        tuple((p.name, i) for p, i in zip(main.outputs, first.outputs, strict=True)),
    )
    description = _described(ops)
    return ModelRecord(subgraphs, tuple(buffers.contents), (signature,), metadata, description)


def _refusal(op: Op, min_runtime: str) -> Refusal | None:
    """Return the reason why a file cannot contain an operator, or None."""
    if exceeds_rank(op) and op.code in _LIMITED:
        most = MAX_RANKS[op.code]
        reason = f"LiteRT's {op.code} takes {most} dimensions at most, and not all sizes are known"
        return Refusal(*_name(op), reason, GIVE_SHAPES)
    release = operator_release(op)
    if not min_runtime or release_order(release) <= (*release_order(min_runtime), _ANY_PATCH):
        return None
    form = ", ".join(map(_form, op.operands))
    reason = (
        f"{op.code} of {form} requires LiteRT's kernels of {release}, and `min_runtime` is "
        f"{min_runtime}"
    )
    return Refusal(*_name(op), reason, f"set `min_runtime` to {release}, or replace the node")


def _name(op: Op) -> tuple[str, str]:
    """Return the original node and its op, or the tensor and code of an operator that was added."""
    if op.node is not None:
        return op.node.name, op.node.op
    return op.outputs[0].name if op.outputs else "", op.code


def _form(value: Value) -> str:
    """Format dtype and shape, such as ``int8[1, ?, 3]``."""
    if value.shape is None:
        return value.dtype.short
    return f"{value.dtype.short}[{', '.join('?' if n < 0 else str(n) for n in value.shape)}]"


def _described(ops: Sequence[Op]) -> str:
    """Return the description of the file, including the ops that need the Flex delegate."""
    flexible = flex_ops(ops)
    if not flexible:
        return _DESCRIPTION
    return f"{_DESCRIPTION}; needs the Flex delegate for {', '.join(flexible)}"


def _listed(main: Program) -> list[Program]:
    """Flatten a program and its nested subgraphs, and set their indices in the options."""
    listed = [main]
    for place, program in enumerate(listed):
        ops = []
        for op in program.ops:
            if op.subgraphs and op.options is not None:
                numbers = range(len(listed), len(listed) + len(op.subgraphs))
                names = _INDICES[op.options.table]
                listed += op.subgraphs
                op = op.with_options(**dict(zip(names, numbers, strict=True)))
            ops.append(op)
        listed[place] = program.with_ops(ops)
    return listed


class _Buffers:
    """Deduplicated bytes of constants."""

    def __init__(self) -> None:
        self.contents: list[bytes | memoryview] = [b""]
        self._numbers: dict[tuple[int, bytes], int] = {}

    def number(self, elements: Array) -> int:
        """Return the index of the buffer with these elements; 0 is the empty buffer."""
        content = np.ascontiguousarray(elements).reshape(-1).view(np.uint8).data
        if not len(content):
            return 0
        key = (len(content), hashlib.sha256(content).digest())
        if key not in self._numbers:
            self._numbers[key] = len(self.contents)
            self.contents.append(content)
        return self._numbers[key]


class _Numbered:
    """A subgraph whose values are numbered in order of use."""

    def __init__(self, program: Program, buffers: _Buffers) -> None:
        self._program = program
        self._buffers = buffers
        self._numbers: dict[Value, int] = {}
        self._tensors: list[LiteTensor] = []

    def record(self) -> SubGraphRecord:
        inputs = self._ports(self._program.inputs)
        operators = tuple(map(self._operator, self._program.ops))
        outputs = self._ports(self._program.outputs)
        name = self._program.name
        return SubGraphRecord(name, tuple(self._tensors), inputs, outputs, operators)

    def _ports(self, ports: Sequence[Port]) -> tuple[int, ...]:
        return tuple(self._number(port.value) for port in ports)

    def _operator(self, op: Op) -> OperatorRecord:
        code = OperatorCode(op.code, op.custom, operator_version(op))
        inputs = tuple(-1 if v is None else self._number(v) for v in op.inputs)
        outputs = tuple(map(self._number, op.outputs))
        inner = tuple(map(self._number, op.intermediates))
        return OperatorRecord(code, inputs, outputs, op.options, op.custom_options, inner)

    def _number(self, value: Value) -> int:
        index = self._numbers.get(value)
        if index is None:
            index = self._numbers[value] = len(self._tensors)
            self._tensors.append(self._tensor(value))
            if value.quantization is not None and value.quantization.block_size:
                self._tensors.append(self._block_scales(value.name, value.quantization))
        return index

    def _tensor(self, value: Value) -> LiteTensor:
        sizes = value.shape or ()
        is_open = any(size < 0 for size in sizes)
        details = value.quantization
        if details is not None and details.block_size:
            details = replace(details, scale_tensor=len(self._tensors) + 1)
        return LiteTensor(
            value.name,
            _NAMES[value.dtype],
            tuple(1 if size < 0 else size for size in sizes),
            sizes if is_open else None,
            0 if value.data is None else self._buffers.number(_stored(value, value.data)),
            details,
            value.is_variable,
        )

    def _block_scales(self, name: str, details: Quantization) -> LiteTensor:
        """Return the tensor with the scales of blocks, which no operator reads."""
        scales = details.scales.astype(np.float16)
        number = self._buffers.number(scales)
        return LiteTensor(f"{name}_scales", NAMES[DType.HALF], scales.shape, None, number)


def _stored(value: Value, data: Array) -> Array:
    """Return elements as stored in a buffer; int4 is packed two per byte, low half first."""
    if value.dtype is DType.STRING:
        return np.frombuffer(text_bytes(texts(data)), np.uint8)
    if value.dtype is not DType.INT4:
        return data
    return packed(data, NARROW["INT4"])


def with_safe_loops(program: Program) -> Program:
    """Reorder the variables of each WHILE to prevent overwrites, and add copies to break cycles.

    If a branch of an IF returns a tensor twice, it returns copies instead.
    """
    safe = {"WHILE": _safe, "IF": _with_distinct_results}
    return program.with_ops([safe[op.code](op) if op.code in safe else op for op in program.ops])


def _with_distinct_results(op: Op) -> Op:
    """Return an IF whose branches return distinct tensors.

    The runtime moves the memory of a result to the output, so a second output would be empty.
    """
    return replace(op, subgraphs=tuple(map(_distinct, op.subgraphs)))


def _distinct(branch: Program) -> Program:
    """Copy each computed tensor that a branch returns more than once."""
    computed = {value for op in branch.ops for value in op.outputs}
    seen: dict[Value, int] = {}
    ports: list[Port] = []
    copies: list[Op] = []
    for port in branch.outputs:
        value = port.value
        number = seen[value] = seen.get(value, 0) + 1
        if number > 1 and value in computed:
            copy = _copy(value, f"_{number}")
            copies += copy
            value = copy[-1].outputs[0]
        elif number > 1 and value.data is not None:
            # The runtime stores the RESHAPE of a constant in memory that an IF cannot move.
            value = replace(value, name=f"{value.name}_copy_{number}")
        ports.append(Port(port.name, value))
    return replace(branch, outputs=tuple(ports), ops=(*branch.ops, *copies))


def _safe(op: Op) -> Op:
    condition, body = op.subgraphs
    sources = _sources(body)
    if all(source > target for target, source in sources.items()):
        return op
    order, cut = _ordered(sources, len(body.inputs))
    ports = list(body.outputs)
    copies: list[Op] = []
    for target in cut:
        copy = _copy(ports[target].value)
        copies += copy
        ports[target] = Port(ports[target].name, copy[-1].outputs[0])

    def sort(ports: Sequence[Port]) -> tuple[Port, ...]:
        return tuple(ports[i] for i in order)

    return replace(
        op,
        inputs=tuple(op.inputs[i] for i in order),
        outputs=tuple(op.outputs[i] for i in order),
        subgraphs=(
            replace(condition, inputs=sort(condition.inputs)),
            replace(
                body,
                inputs=sort(body.inputs),
                outputs=sort(ports),
                ops=(*copies, *body.ops),
            ),
        ),
    )


def _sources(body: Program) -> dict[int, int]:
    """Map each variable that is assigned from another variable to the index of that one."""
    indices = {port.value: i for i, port in enumerate(body.inputs)}
    sources = {i: indices.get(port.value, i) for i, port in enumerate(body.outputs)}
    unchanged = {
        i for i, source in sources.items() if body.outputs[i].value is body.inputs[i].value
    }
    return {i: j for i, j in sources.items() if i != j and j not in unchanged}


def _ordered(sources: Mapping[int, int], count: int) -> tuple[list[int], list[int]]:
    """Return an order with each variable before its source, and the variables to copy for it."""
    rest = dict(sources)
    order: list[int] = []
    cut: list[int] = []
    waiting = list(range(count))
    while waiting:
        read = set(rest.values())
        # A variable may be overwritten after all variables assigned from it.
        ready = [i for i in waiting if i not in read]
        if not ready:
            cut.append(waiting[0])
            del rest[waiting[0]]
            continue
        order += ready
        waiting = [i for i in waiting if i in read]
        for i in ready:
            rest.pop(i, None)
    return order, cut


def _copy(value: Value, suffix: str = "") -> list[Op]:
    """Return operators that copy a tensor: a RESHAPE to its own shape."""
    name = f"{value.name}_copy{suffix}"
    target = replace(value, name=name, data=None)
    if value.shape is not None and min(value.shape, default=0) >= 0:
        return [reshape(value, target)]
    rank = -1 if value.shape is None else len(value.shape)
    shape = Value(f"{name}_shape", DType.INT32, (rank,))
    return [
        builtin("SHAPE", [value], [shape], out_type="INT32"),
        builtin("RESHAPE", [value, shape], [target]),
    ]
