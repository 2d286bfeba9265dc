"""OpDef messages to op signatures and back."""

from __future__ import annotations

from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.ir.opdef import ArgDef, AttrDef, OpDef
from mobileprep.ir.serde_attrs import attr_from_proto, attr_to_proto


def opdef_from_proto(proto: pb.OpDef, where: str) -> OpDef:
    """Read a signature; descriptions are left out."""
    return OpDef(
        proto.name,
        tuple(_arg_from_proto(a) for a in proto.input_arg),
        tuple(_arg_from_proto(a) for a in proto.output_arg),
        tuple(_attr_from_proto(a, where) for a in proto.attr),
        tuple(proto.control_output),
        proto.is_stateful,
        proto.is_commutative,
        proto.is_aggregate,
        proto.allows_uninitialized_input,
        proto.deprecation.version,
    )


def opdef_to_proto(opdef: OpDef, proto: pb.OpDef) -> None:
    """Fill an empty OpDef message."""
    proto.name = opdef.name
    for arg in opdef.inputs:
        _arg_to_proto(arg, proto.input_arg.add())
    for arg in opdef.outputs:
        _arg_to_proto(arg, proto.output_arg.add())
    for attr in opdef.attrs:
        _attr_to_proto(attr, proto.attr.add())
    proto.control_output.extend(opdef.control_outputs)
    proto.is_stateful = opdef.is_stateful
    proto.is_commutative = opdef.is_commutative
    proto.is_aggregate = opdef.is_aggregate
    proto.allows_uninitialized_input = opdef.allows_uninitialized_input
    if opdef.deprecated_at:
        proto.deprecation.version = opdef.deprecated_at


def _arg_from_proto(proto: pb.OpDef.ArgDef) -> ArgDef:
    return ArgDef(
        proto.name,
        DType(proto.type),
        proto.type_attr,
        proto.number_attr,
        proto.type_list_attr,
        proto.is_ref,
        tuple(proto.handle_data),
    )


def _arg_to_proto(arg: ArgDef, proto: pb.OpDef.ArgDef) -> None:
    proto.name = arg.name
    proto.type = arg.dtype.value  # type: ignore[assignment]
    proto.type_attr = arg.type_attr
    proto.number_attr = arg.number_attr
    proto.type_list_attr = arg.type_list_attr
    proto.is_ref = arg.is_ref
    proto.handle_data.extend(arg.handle_data)


def _attr_from_proto(proto: pb.OpDef.AttrDef, where: str) -> AttrDef:
    default = proto.default_value if proto.HasField("default_value") else None
    allowed = proto.allowed_values if proto.HasField("allowed_values") else None
    return AttrDef(
        proto.name,
        proto.type,
        None if default is None else attr_from_proto(default, [], where),
        None if allowed is None else attr_from_proto(allowed, [], where),
        proto.minimum if proto.has_minimum else None,
    )


def _attr_to_proto(attr: AttrDef, proto: pb.OpDef.AttrDef) -> None:
    proto.name = attr.name
    proto.type = attr.kind
    if attr.default is not None:
        attr_to_proto(attr.default, proto.default_value)
    if attr.allowed is not None:
        attr_to_proto(attr.allowed, proto.allowed_values)
    if attr.minimum is not None:
        proto.has_minimum = True
        proto.minimum = attr.minimum
