"""The interface of lowerings: query the graph, and emit operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.core.loading import Registry, import_on_demand, module_names
from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.formats.tflite.layout import layout
from mobileprep.formats.tflite.records import Options, OptionValue
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array
from mobileprep.litert.program import Op, Program, Value, builtin
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.tables import Tables
from mobileprep.litert.types import NAMES, check_moved
from mobileprep.ops.constant_evaluation import StaticValues
from mobileprep.ops.shape_inference import Shapes, shape_of

ACTIVATION = "fused_activation_function"


class Scope:
    """The operators of a graph that is being lowered, and the known facts about the graph.

    Args:
        graph: the graph.
        shapes: the shapes of its tensors.
        fed: names of the nodes whose outputs are fed.
        function: returns the program of a library function, by its name and arguments.
        tables: its lookup tables.
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[str, Shapes],
        fed: frozenset[str],
        function: Callable[[str, Sequence[Value]], Program],
        tables: Tables,
    ) -> None:
        self.graph = graph
        self.function = function
        self.tables = tables
        self.ops: list[Op] = []
        self.halves: dict[Value, tuple[Value, Value]] = {}
        """Real and imaginary parts of complex values; only the parts are in the program."""
        self._shapes = shapes
        self._static = StaticValues(graph.by_name, self.shape_of, fed)
        self._constants: dict[tuple[object, ...], Value] = {}
        self._relaid: dict[tuple[int, str], tuple[Array, Value]] = {}
        self._names: set[str] = set()

    def shape_of(self, ref: Ref) -> TensorShape:
        return shape_of(self._shapes, ref)

    def output_shape(self, node: Node, index: int = 0) -> TensorShape:
        return self.shape_of(Ref(node.name, index))

    def known_value(self, node: Node, index: int) -> Array | None:
        """Return the elements of a node's input if they follow from constants and shapes."""
        return self._static.value(node.data_inputs[index])

    def settled(self, node: Node) -> Array | None:
        """Return the elements of a node's only output if they are known and not float16 or float32.

        Sizes and indices that follow from the shapes of inputs may be computed with types and ops
        that LiteRT lacks.
        """
        if not node.data_inputs or len(self._shapes.get(node.name, ())) != 1:
            return None
        value = self._static.value(Ref(node.name))
        if value is None or value.dtype.kind not in "biuf" or value.dtype in _WEIGHTS:
            return None
        return value if dtype_from_numpy(value.dtype) in NAMES else None

    def as_shape(self, node: Node, index: int) -> TensorShape:
        """Read a node's input as a shape, with -1 for unknown sizes; None for an unknown rank."""
        return self._static.as_shape(node.data_inputs[index])

    def needed(self, node: Node, index: int, what: str) -> Array:
        """Return the elements of an input, or raise ``CannotExpressError`` if they are unknown."""
        value = self.known_value(node, index)
        if value is None:
            reason = f"its {what} is computed while the graph runs"
            raise CannotExpressError(reason, f"make the {what} a constant")
        return value

    def integers(self, node: Node, index: int, what: str) -> tuple[int, ...]:
        """Return the integers of an input that must be known; see ``needed``."""
        return tuple(int(x) for x in self.needed(node, index, what).reshape(-1))

    def constant(
        self, array: Array | np.generic, name: str = "", dtype: DType | None = None
    ) -> Value:
        """Create a constant; equal small constants share one value."""
        array = np.asarray(array)
        kind = dtype or dtype_from_numpy(array.dtype)
        if kind is None:
            reason = f"numbers of type {array.dtype} have no counterpart"
            raise CannotExpressError(reason, "cast them to float32")
        is_small = array.nbytes <= _SMALL and kind is not DType.STRING
        key = (kind, array.shape, array.tobytes()) if is_small else None
        if key is not None and key in self._constants:
            return self._constants[key]
        value = Value(self.unique(name or "constant"), kind, array.shape, array)
        if key is not None:
            self._constants[key] = value
        return value

    def integers_constant(self, numbers: Sequence[int] | Array, name: str = "") -> Value:
        """Create an int32 constant, such as axes or sizes.

        Raises:
            OverflowError: a number does not fit in 32 bits.
        """
        wide = np.asarray(numbers)
        if wide.size and (
            wide.dtype.kind not in "biu" or not _BITS.min <= wide.min() <= wide.max() <= _BITS.max
        ):
            message = f"its {name or 'numbers'} are not 32-bit integers"
            raise OverflowError(message)
        return self.constant(wide.astype(np.int32), name)

    def relaid(self, weights: Value, form: str, change: Array) -> Value:
        """Return a constant in another layout, shared by all nodes that read it."""
        assert weights.data is not None
        key = (id(weights.data), form)
        cached = self._relaid.get(key)
        if cached is None:
            constant = self.constant(change, weights.name, weights.dtype)
            cached = self._relaid[key] = (weights.data, constant)
        return cached[1]

    def emit(
        self,
        code: str,
        inputs: Sequence[Value | None],
        shape: TensorShape,
        dtype: DType | None = None,
        /,
        **options: OptionValue,
    ) -> Value:
        """Emit a builtin with one output, by default of the first input's dtype; return it."""
        if dtype is None:
            assert inputs[0] is not None
            dtype = inputs[0].dtype
        return self.emit_many(code, inputs, [(shape, dtype)], **options)[0]

    def emit_plain(self, code: str, value: Value, shape: TensorShape) -> Value:
        """Emit an elementwise builtin without options, and return its output."""
        outputs = _new_values([(shape, value.dtype)])
        self.ops.append(Op(code, (value,), outputs))
        return outputs[0]

    def emit_many(
        self,
        code: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[tuple[TensorShape, DType]],
        /,
        **options: OptionValue,
    ) -> tuple[Value, ...]:
        """Emit a builtin, and return its outputs."""
        results = _new_values(outputs)
        kinds = (v.dtype for v in inputs[:1] if v is not None)
        check_moved(code, (*kinds, *(kind for _, kind in outputs)))
        op = builtin(code, inputs, results, **options)
        if op.options is not None:
            _check_options(op.options)
        self.ops.append(op)
        return results

    def emit_running(
        self,
        code: str,
        inputs: Sequence[Value],
        outputs: Sequence[tuple[TensorShape, DType]],
        subgraphs: Sequence[Program],
    ) -> tuple[Value, ...]:
        """Emit an operator that runs subgraphs, and return its outputs."""
        results = _new_values(outputs)
        self.ops.append(replace(builtin(code, inputs, results), subgraphs=tuple(subgraphs)))
        return results

    def emit_custom(
        self,
        custom: str,
        inputs: Sequence[Value],
        outputs: Sequence[tuple[TensorShape, DType]],
        options: bytes,
    ) -> tuple[Value, ...]:
        """Emit a custom operator, and return its outputs."""
        results = _new_values(outputs)
        self.ops.append(Op("CUSTOM", tuple(inputs), results, None, custom, options))
        return results

    def unique(self, name: str) -> str:
        """Return a unique name for a constant."""
        candidate, number = name, 0
        while candidate in self._names:
            number += 1
            candidate = f"{name}_{number}"
        self._names.add(candidate)
        return candidate


def _new_values(outputs: Sequence[tuple[TensorShape, DType]]) -> tuple[Value, ...]:
    """Create the outputs of an operator."""
    unknown = next((kind for _, kind in outputs if kind not in NAMES), None)
    if unknown is not None:
        reason = f"LiteRT has no operators on {unknown.short}"
        raise CannotExpressError(reason, "cast its input to another dtype first")
    return tuple(Value("", dtype, shape) for shape, dtype in outputs)


def _check_options(options: Options) -> None:
    """Raise ``OverflowError`` for integers that do not fit in their fields."""
    for name, value in options.values.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if layout().field(options.table, name)[1] in ("int", "[int]") and any(
            not _BITS.min <= number <= _BITS.max for number in numbers if isinstance(number, int)
        ):
            message = f"its {name} is beyond 32 bits"
            raise OverflowError(message)


_BITS = np.iinfo(np.int32)
_SMALL = 1 << 12
_WEIGHTS = (np.float16, np.float32)


_PACKAGE: Final = "mobileprep.litert.ops"

Lowered = Value | tuple[Value, ...]
Lowering = Callable[["Scope", Node, Sequence[Value]], Lowered]
"""``lowering(scope, node, inputs) -> output or tuple of outputs``.

Raises:
    CannotExpressError: no LiteRT operators compute the same result.
"""

registry: Registry[Lowering] = Registry("lowering")


def lowering(*names: str) -> Callable[[Lowering], Lowering]:
    """Register a function as the lowering of the named ops."""
    return registry.register(*names)


def find_lowering(op: str) -> Lowering | None:
    """Return the lowering of an op, or None."""
    _import_all()
    return registry.get(op)


def lowered_ops() -> list[str]:
    """Return the names of all ops with a lowering, sorted."""
    _import_all()
    return list(registry)


@lru_cache(maxsize=1)
def _import_all() -> None:
    for module in module_names(_PACKAGE):
        import_on_demand(f"{_PACKAGE}.{module}")
