"""Immutable nodes: name, op, inputs, device, and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, FuncRef, TensorShape
from mobileprep.graph.refs import CONTROL, Ref
from mobileprep.graph.tensor import Tensor

_FAULTY = "the graph was written by a faulty tool, or a step took the attribute off"


class Node(Struct, frozen=True):
    """A node of a graph or of a function's body.

    Args:
        name: unique name in its graph.
        op: name of the op or function.
        inputs: tensors first, then control dependencies, in the order of the graph.
        device: requested device, or an empty string.
        attrs: attributes by name; treated as read-only.
        debug_info: serialized debugging and type records, preserved without parsing.
    """

    name: str
    op: str
    inputs: tuple[Ref, ...] = ()
    device: str = ""
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    debug_info: tuple[bytes, bytes] = (b"", b"")

    @property
    def data_inputs(self) -> tuple[Ref, ...]:
        """The inputs that are tensors."""
        return tuple([r for r in self.inputs if r.index != CONTROL])

    @property
    def control_inputs(self) -> tuple[Ref, ...]:
        """The inputs that only order execution."""
        return tuple([r for r in self.inputs if r.index == CONTROL])

    def with_inputs(self, inputs: tuple[Ref, ...]) -> Node:
        """Return a copy with other inputs."""
        return Node(self.name, self.op, inputs, self.device, self.attrs, self.debug_info)

    def with_attrs(self, /, **changes: AttrValue) -> Node:
        """Return a copy with changed or added attributes."""
        return replace(self, attrs={**self.attrs, **changes})

    def without_attrs(self, *names: str) -> Node:
        """Return a copy without these attributes; ignore names that do not exist."""
        return replace(self, attrs={k: v for k, v in self.attrs.items() if k not in names})

    def attribute(self, name: str) -> AttrValue:
        """Return an attribute of any kind.

        Raises:
            InvalidGraphError: if the node does not have the attribute.
        """
        attr = self.attrs.get(name)
        if attr is None:
            message = f"node {self.name!r} ({self.op}) has no attribute {name!r}"
            raise InvalidGraphError(message, _FAULTY)
        return attr

    def attr_int(self, name: str, default: int | None = None) -> int:
        """Return an int attribute.

        Raises:
            InvalidGraphError: if it does not exist and has no default, or is of another kind.
        """
        return int(self._attr(name, "int", default))

    def attr_float(self, name: str, default: float | None = None) -> float:
        """Return a float attribute; see ``attr_int``."""
        return float(self._attr(name, "float", default))

    def attr_bool(self, name: str, default: bool | None = None) -> bool:
        """Return a bool attribute; see ``attr_int``."""
        return bool(self._attr(name, "bool", default))

    def attr_str(self, name: str, default: str | None = None) -> str:
        """Return a string attribute as str, with undecodable bytes escaped; see ``attr_int``."""
        value = self._attr(name, "string", default)
        return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)

    def attr_dtype(self, name: str, default: DType | None = None) -> DType:
        """Return a type attribute; see ``attr_int``."""
        value: DType = self._attr(name, "type", default)
        return value

    def attr_tensor(self, name: str) -> Tensor:
        """Return a tensor attribute; see ``attr_int``."""
        value: Tensor = self._attr(name, "tensor", None)
        return value

    def attr_shape(self, name: str) -> TensorShape:
        """Return a shape attribute; None for an unknown rank, or if it does not exist."""
        if self.attrs.get(name) is None:
            return None
        value: TensorShape = self._attr(name, "shape", None)
        return value

    def attr_func(self, name: str) -> FuncRef:
        """Return a function attribute; see ``attr_int``."""
        value: FuncRef = self._attr(name, "func", None)
        return value

    def attr_ints(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return a list(int) attribute; see ``attr_int``."""
        return self._attr_list(name, "list(int)", default)

    def attr_floats(self, name: str, default: tuple[float, ...] | None = None) -> tuple[float, ...]:
        """Return a list(float) attribute; see ``attr_int``."""
        return self._attr_list(name, "list(float)", default)

    def attr_dtypes(self, name: str) -> tuple[DType, ...]:
        """Return a list(type) attribute; see ``attr_int``."""
        return self._attr_list(name, "list(type)", None)

    def attr_shapes(self, name: str) -> tuple[TensorShape, ...]:
        """Return a list(shape) attribute; see ``attr_int``."""
        return self._attr_list(name, "list(shape)", None)

    def attr_strings(self, name: str) -> tuple[bytes, ...]:
        """Return a list(string) attribute; see ``attr_int``."""
        return self._attr_list(name, "list(string)", None)

    def _attr_list(self, name: str, kind: str, default: tuple[Any, ...] | None) -> tuple[Any, ...]:
        attr = self.attrs.get(name)
        if attr is not None and attr.kind == "list":
            return ()
        value: tuple[Any, ...] = self._attr(name, kind, default)
        return value

    def _attr(self, name: str, kind: str, default: Any) -> Any:  # noqa: ANN401 - narrowed above
        attr = self.attrs.get(name)
        if attr is not None and attr.kind == kind:
            return attr.value
        if attr is None and default is not None:
            return default
        message = f"node {self.name!r} ({self.op}) has no {kind} attribute {name!r}"
        if attr is not None:
            message = f"attribute {name!r} of node {self.name!r} ({self.op}) is not a {kind}"
        raise InvalidGraphError(message, _FAULTY)


def constant(name: str, value: Tensor, device: str = "", inputs: tuple[Ref, ...] = ()) -> Node:
    """Create a Const node."""
    attrs = {"dtype": attr.dtype(value.dtype), "value": attr.tensor(value)}
    return Node(name, "Const", inputs, device, attrs)
