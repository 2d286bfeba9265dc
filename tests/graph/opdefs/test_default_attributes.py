"""The attributes that nodes have without naming them."""

from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Function, Library
from mobileprep.graph.opdef import AttrDef, OpDef
from mobileprep.graph.opdefs.definitions import default_attrs


def test_the_oldest_release_decides_where_it_knows_the_op():
    found = default_attrs("Conv2D", Library())
    assert found["data_format"] == attr.string("NHWC")
    # Of release 2.21 only.
    assert "grad_x" not in default_attrs("MatMul", Library())


def test_newer_ops_have_the_newest_releases():
    assert default_attrs("QuantizeAndDequantizeV4", Library())["num_bits"] == attr.integer(8)


def test_a_function_has_its_signatures():
    signature = OpDef("F", attrs=(AttrDef("k", "int", attr.integer(3)), AttrDef("n", "int")))
    library = Library({"F": Function(signature)})
    assert default_attrs("F", library) == {"k": attr.integer(3)}


def test_nobody_knows_the_defaults_of_an_unknown_op():
    assert default_attrs("MyOwnOp", Library()) is None
