"""Default attributes of nodes."""

from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Function, Library
from mobileprep.graph.opdef import AttrDef, OpDef
from mobileprep.graph.opdefs.definitions import default_attrs


def test_defaults_come_from_the_oldest_release():
    defaults = default_attrs("Conv2D", Library())
    assert defaults["data_format"] == attr.string("NHWC")
    # Only in release 2.21.
    assert "grad_x" not in default_attrs("MatMul", Library())


def test_newer_ops_use_the_newest_release():
    assert default_attrs("QuantizeAndDequantizeV4", Library())["num_bits"] == attr.integer(8)


def test_defaults_of_a_function_come_from_its_signature():
    signature = OpDef("F", attrs=(AttrDef("k", "int", attr.integer(3)), AttrDef("n", "int")))
    library = Library({"F": Function(signature)})
    assert default_attrs("F", library) == {"k": attr.integer(3)}


def test_unknown_op_has_no_defaults():
    assert default_attrs("MyOwnOp", Library()) is None
