"""A node: name, op, inputs, device and attributes, never changed once made."""

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
    """One node of a graph or of a function's body.

    Args:
        name: unique in its graph.
        op: the op's name, or a function's.
        inputs: tensors first, control dependencies last, as the graph lists them.
        device: the requested device, or an empty text.
        attrs: by name; treated as read-only.
        debug_info: serialized debugging and type records, carried through unread.
    """

    name: str
    op: str
    inputs: tuple[Ref, ...] = ()
    device: str = ""
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    debug_info: tuple[bytes, bytes] = (b"", b"")

    @property
    def data_inputs(self) -> tuple[Ref, ...]:
        """The inputs that carry tensors."""
        return tuple([r for r in self.inputs if r.index != CONTROL])

    @property
    def control_inputs(self) -> tuple[Ref, ...]:
        """The inputs that only order execution."""
        return tuple([r for r in self.inputs if r.index == CONTROL])

    def with_inputs(self, inputs: tuple[Ref, ...]) -> Node:
        """The node with other inputs."""
        return Node(self.name, self.op, inputs, self.device, self.attrs, self.debug_info)

    def with_attrs(self, **changes: AttrValue) -> Node:
        """The node with attributes set."""
        return replace(self, attrs={**self.attrs, **changes})

    def without_attrs(self, *names: str) -> Node:
        """The node with attributes taken off; names that it does not have are ignored."""
        return replace(self, attrs={k: v for k, v in self.attrs.items() if k not in names})

    def attribute(self, name: str) -> AttrValue:
        """An attribute of any kind, to be passed on.

        Raises:
            InvalidGraphError: the node does not have it.
        """
        found = self.attrs.get(name)
        if found is None:
            message = f"node {self.name!r} ({self.op}) has no attribute {name!r}"
            raise InvalidGraphError(message, _FAULTY)
        return found

    def attr_int(self, name: str, default: int | None = None) -> int:
        """An int attribute.

        Raises:
            InvalidGraphError: absent and without default, or of another kind.
        """
        return int(self._attr(name, "int", default))

    def attr_float(self, name: str, default: float | None = None) -> float:
        """A float attribute; see ``attr_int``."""
        return float(self._attr(name, "float", default))

    def attr_bool(self, name: str, default: bool | None = None) -> bool:
        """A bool attribute; see ``attr_int``."""
        return bool(self._attr(name, "bool", default))

    def attr_str(self, name: str, default: str | None = None) -> str:
        """A string attribute as text, undecodable bytes escaped; see ``attr_int``."""
        value = self._attr(name, "string", default)
        return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)

    def attr_dtype(self, name: str, default: DType | None = None) -> DType:
        """A type attribute; see ``attr_int``."""
        value: DType = self._attr(name, "type", default)
        return value

    def attr_tensor(self, name: str) -> Tensor:
        """A tensor attribute; see ``attr_int``."""
        value: Tensor = self._attr(name, "tensor", None)
        return value

    def attr_shape(self, name: str) -> TensorShape:
        """A shape attribute: None for an unknown rank, or where the attribute is absent."""
        found = self.attrs.get(name)
        if found is None:
            return None
        value: TensorShape = self._attr(name, "shape", None)
        return value

    def attr_func(self, name: str) -> FuncRef:
        """A function attribute; see ``attr_int``."""
        value: FuncRef = self._attr(name, "func", None)
        return value

    def attr_ints(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A list(int) attribute; see ``attr_int``."""
        return self._attr_list(name, "list(int)", default)

    def attr_floats(self, name: str, default: tuple[float, ...] | None = None) -> tuple[float, ...]:
        """A list(float) attribute; see ``attr_int``."""
        return self._attr_list(name, "list(float)", default)

    def attr_dtypes(self, name: str) -> tuple[DType, ...]:
        """A list(type) attribute; see ``attr_int``."""
        return self._attr_list(name, "list(type)", None)

    def attr_shapes(self, name: str) -> tuple[TensorShape, ...]:
        """A list(shape) attribute; see ``attr_int``."""
        return self._attr_list(name, "list(shape)", None)

    def attr_strings(self, name: str) -> tuple[bytes, ...]:
        """A list(string) attribute; see ``attr_int``."""
        return self._attr_list(name, "list(string)", None)

    def _attr_list(self, name: str, kind: str, default: tuple[Any, ...] | None) -> tuple[Any, ...]:
        found = self.attrs.get(name)
        if found is not None and found.kind == "list":
            return ()
        value: tuple[Any, ...] = self._attr(name, kind, default)
        return value

    def _attr(self, name: str, kind: str, default: Any) -> Any:  # noqa: ANN401 - narrowed above
        found = self.attrs.get(name)
        if found is not None and found.kind == kind:
            return found.value
        if found is None and default is not None:
            return default
        message = f"node {self.name!r} ({self.op}) has no {kind} attribute {name!r}"
        if found is not None:
            message = f"attribute {name!r} of node {self.name!r} ({self.op}) is not a {kind}"
        raise InvalidGraphError(message, _FAULTY)


def constant(name: str, value: Tensor, device: str = "", inputs: tuple[Ref, ...] = ()) -> Node:
    """A Const node."""
    attrs = {"dtype": attr.dtype(value.dtype), "value": attr.tensor(value)}
    return Node(name, "Const", inputs, device, attrs)
