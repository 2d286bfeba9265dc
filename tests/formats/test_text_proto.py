"""Parsing protobuf text: comparison with protobuf, corner cases, and errors."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mobileprep.errors import CorruptFileError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.formats.text_fields import literal_end, unescape
from mobileprep.formats.text_proto import text_to_wire
from mobileprep.graph.attrs import ArgDef, OpDef
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.serde import graph_to_bytes


def parse(text: str | bytes, message=pb.GraphDef):
    data = text.encode() if isinstance(text, str) else text
    return message.FromString(bytes(text_to_wire(data, message, "g.pbtxt")))


def error_of(text: str | bytes, message=pb.GraphDef) -> str:
    with pytest.raises(CorruptFileError) as caught:
        parse(text, message)
    return str(caught.value)


def test_text_of_tensorflow_is_read():
    text = """
node {
  name: "a"
  op: "Const"
  attr {
    key: "value"
    value {
      tensor {
        dtype: DT_FLOAT
        tensor_shape {
          dim {
            size: 2
          }
        }
        tensor_content: "\\000\\000\\200?\\"\\n\\\\\\377"
      }
    }
  }
}
versions {
  producer: 27
}
"""
    expected = text_format.Parse(text, pb.GraphDef())
    assert parse(text) == expected
    content = expected.node[0].attr["value"].tensor.tensor_content
    assert content == b'\x00\x00\x80?"\n\\\xff'


ATTRIBUTE = """  attr {
    key: "shape"
    value {
      shape {
        dim {
          size: 8
        }
        dim {
          size: 8
        }
      }
    }
  }
"""


@pytest.mark.parametrize(
    "attribute",
    [
        ATTRIBUTE,
        # The text at the expected closing brace closes another message or is another token.
        ATTRIBUTE.replace("\n        }\n        dim", "\n  }\n        dim"),
        ATTRIBUTE.replace("    key", '    # a comment with\n  #}\n  key: "x" }\n  attr { key'),
        ATTRIBUTE.replace("value {", "value <").replace("\n    }", "\n    >"),
        ATTRIBUTE.replace('"shape"', f'"{"long" * 200}"'),
        " ".join(ATTRIBUTE.split()),
    ],
)
def test_repeated_messages_are_read(attribute):
    nodes = "".join(f'node {{\n  name: "{n}"\n{attribute}}}\n' for n in "abc")
    body = f'node_def {{\n  name: "d"\n{attribute}}}\n'
    text = f"{nodes}library {{ function {{\n{body}{body}}} }}"
    assert parse(text) == text_format.Parse(text, pb.GraphDef())


def test_error_after_repeated_messages_has_its_location():
    text = f"node {{\n{ATTRIBUTE}}}\nnode {{\n{ATTRIBUTE}{ATTRIBUTE}  attr {{ key: 3 }}\n}}\n"
    line = text[: text.index("key: 3")].count("\n") + 1
    assert f"g.pbtxt:{line}:15" in error_of(text)


def test_empty_text_is_an_empty_message():
    assert parse("") == pb.GraphDef()
    assert parse("  # nothing here\n") == pb.GraphDef()


@pytest.mark.parametrize(
    "text",
    [
        'node < name: "a" op: "b" >',
        'node: { name: "a", op: "b"; }',
        'node{name:"a"op:"b"}',
        "node { name: 'a' op: 'b' }",
        'node { name: "" "a" op: "b" }',
        'node { # comment "quoted" }\n name: # more\n "a" # x\n op : "b" }',
        'node\n{\r\n\tname\n:\n"a" op: "b" }',
        'node [{ name: "a" op: "b" }]',
        '\ufeffnode { name: "a" op: "b" }',
        'node { name: "a" op: "b" [some.extension] { x: 1 } }',
        'node { name: "a" op: "b" unknown: 3 other { deep { x: [1, 2] y: "}" } } 77: 1 }',
        'node { name: "a" op: "b" experimental_type { type_id: TFT_PRODUCT args { } } }',
        'node { name: "\\141" op: "\\x62" }',
        'node { name: "\\u0061" op: "b" }',
    ],
)
def test_syntax_variants_of_a_node(text):
    assert parse(text) == pb.GraphDef(node=[pb.NodeDef(name="a", op="b")])


def test_short_and_long_lists_of_scalars():
    tensor = parse("float_val: [1.0, 2, -3e0] float_val: 4 int_val: []", pb.TensorProto)
    assert list(tensor.float_val) == [1.0, 2.0, -3.0, 4.0]
    assert list(parse('string_val: ["a" "b", "c"]', pb.TensorProto).string_val) == [b"ab", b"c"]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("1", 1.0),
        ("-1.5", -1.5),
        ("- 1.5", -1.5),
        ("1.5f", 1.5),
        (".5", 0.5),
        ("3.", 3.0),
        ("1e-05", 1e-05),
        ("1.40129846432e-45", 1.401298464324817e-45),
        ("1E+10", 1e10),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("1e39", math.inf),
        ("-1e999", -math.inf),
    ],
)
def test_floats(literal, value):
    expected = pb.AttrValue(f=value) if abs(value) < 1e38 else None
    attribute = parse(f"f: {literal}", pb.AttrValue)
    assert attribute == expected if expected else attribute.f == value


def test_nan():
    assert math.isnan(parse("f: nan", pb.AttrValue).f)


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("0", 0),
        ("-1", -1),
        ("0x10", 16),
        ("-0x10", -16),
        ("017", 15),
        ("9223372036854775807", (1 << 63) - 1),
        ("-9223372036854775808", -(1 << 63)),
    ],
)
def test_integers(literal, value):
    assert parse(f"i: {literal}", pb.AttrValue).i == value


def test_enums_by_name_and_by_number():
    assert parse("type: DT_HALF", pb.AttrValue).type == 19
    assert parse("type: 19", pb.AttrValue).type == 19
    assert parse("type: 4711", pb.AttrValue).type == 4711


@pytest.mark.parametrize(("literal", "value"), [("true", True), ("False", False), ("1", True)])
def test_booleans(literal, value):
    assert parse(f"b: {literal}", pb.AttrValue) == pb.AttrValue(b=value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node {", "g.pbtxt:1:7: the text ends inside the message opened at 1:6"),
        ('node {\n  name: "a\n}', "g.pbtxt:2:9: a string does not end on its line"),
        ("}", "g.pbtxt:1:1: '}' stands where a field is expected"),
        ("node { >", "g.pbtxt:1:8: '>' stands where '}' is expected"),
        ("node { name: 3 }", "g.pbtxt:1:14: the field 'name' takes a quoted string"),
        ('node: "a"', "g.pbtxt:1:7: the field 'node' takes a message in braces"),
        ('node { name: "a" name: "b" }', "g.pbtxt:1:18: the field 'name' is given twice"),
        ("node { name }", "g.pbtxt:1:13: '}' stands where ':' or '{' is expected"),
        ("node { name: }", "g.pbtxt:1:14: '}' stands where a value is expected"),
        ("versions { producer: 1.5 }", "g.pbtxt:1:22: 1.5 is not an integer"),
        ("versions { producer: {} }", "takes a number or a name"),
        ("versions { producer: [1] }", "takes one value, not a list"),
        ("versions { producer: 4294967296 }", "is out of the range -2147483648 to 2147483647"),
        ('node { name: "\\q" }', "g.pbtxt:1:14: the escape \\q is unknown"),
        ('node { name: "\\777" }', "the escape \\777 is beyond one byte"),
        ('node { name: "\\ud800" }', "the escape \\ud800 is not a character"),
        (b'node { name: "\xff" }', "the string of 'name' is not valid UTF-8"),
        ("\x01\x02", "g.pbtxt:1:1: '\\x01' stands where a field's name is expected"),
        ("node [ { ]", "g.pbtxt:1:10: ']' stands where a field's name is expected"),
        ("node [ { } }", "g.pbtxt:1:12: '}' stands where a value is expected"),
        ("versions [1]", "the field 'versions' takes one value, not a list"),
        ("node { input [1] }", "the field 'input' takes a quoted string"),
        ("node " * 3, "stands where ':' or '{' is expected"),
    ],
)
def test_errors_have_line_and_column(text, message):
    assert message in error_of(text)


def test_invalid_values_are_reported():
    assert "did you mean 'DT_FLOAT'" in error_of("type: DT_FLAOT", pb.AttrValue)
    assert "1_0 is not a number" in error_of("f: 1_0", pb.AttrValue)
    assert "maybe stands where true or false is expected" in error_of("b: maybe", pb.AttrValue)


def test_two_fields_of_a_oneof_are_refused():
    assert "given twice" in error_of("i: 1 f: 2", pb.AttrValue)


def test_nesting_depth_is_limited():
    deep = "attr { value { list { func { " * 50_000
    assert "more than 100 deep" in error_of(f"node {{ {deep}")
    assert "more than 100 deep" in error_of("x " + "{ y " * 100_000)


def test_internal_payload_field_is_ignored():
    assert parse("payload: 1 dtype: DT_FLOAT", pb.TensorProto) == pb.TensorProto(dtype=1)


def test_long_contents_are_decoded():
    raw = bytes(range(256)) * 20_000
    escaped = "".join(f"\\{b:03o}" for b in range(256)) * 20_000
    tensor = parse(f'tensor_content: "{escaped}"', pb.TensorProto)
    assert tensor.tensor_content == raw
    backslashes = parse('tensor_content: "' + "\\\\" * 2_000_000 + '"', pb.TensorProto)
    assert backslashes.tensor_content == b"\\" * 2_000_000


def test_long_inputs_take_linear_time():
    # With backtracking, each of these would take minutes.
    error_of("a" * 1_000_000)
    error_of(" " * 1_000_000 + "?")
    error_of('name: "' + '\\"' * 500_000)
    error_of("versions { producer: " + "9" * 1_000_000 + " }")
    parse("# comment\n" * 100_000)


_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
_VALUES = st.one_of(
    st.builds(lambda s: pb.AttrValue(s=s), st.binary(max_size=20)),
    st.builds(lambda i: pb.AttrValue(i=i), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.builds(lambda f: pb.AttrValue(f=f), st.floats(width=32, allow_nan=False)),
    st.builds(lambda b: pb.AttrValue(b=b), st.booleans()),
    st.builds(
        lambda c, v: pb.AttrValue(tensor=pb.TensorProto(tensor_content=c, double_val=v)),
        st.binary(max_size=3000),
        st.lists(st.floats(allow_nan=False), max_size=4),
    ),
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(_NAMES, st.dictionaries(_NAMES, _VALUES, max_size=4)), max_size=4))
def test_text_printed_by_protobuf_survives_a_round_trip(nodes):
    graph = pb.GraphDef()
    for name, values in nodes:
        node = graph.node.add(name=name)
        for key, value in values.items():
            node.attr[key].CopyFrom(value)
    for one_line in (False, True):
        assert parse(text_format.MessageToString(graph, as_one_line=one_line)) == graph
    assert parse(text_format.MessageToString(graph, as_utf8=True)) == graph
    short = text_format.MessageToString(graph, use_short_repeated_primitives=True)
    assert parse(short) == graph


TEXT_FIELDS_ATTRIBUTE = 'node {{ attr {{ key: "a" value {{ {} }} }} }}'


def value(text: str):
    data = TEXT_FIELDS_ATTRIBUTE.format(text).encode()
    graph = pb.GraphDef.FromString(bytes(text_to_wire(data, pb.GraphDef, "g.pbtxt")))
    return graph.node[0].attr["a"]


@pytest.mark.parametrize("number", [-(1 << 63) - 1, 1 << 63])
def test_int64_overflow_is_refused(number: int) -> None:
    with pytest.raises(CorruptFileError):
        value(f"i: {number}")


@pytest.mark.parametrize(
    ("name", "minimum", "maximum"),
    [
        ("int_val", -(1 << 31), (1 << 31) - 1),
        ("uint32_val", 0, (1 << 32) - 1),
        ("uint64_val", 0, (1 << 64) - 1),
    ],
)
def test_limits_of_tensor_elements(name: str, minimum: int, maximum: int) -> None:
    for number in (minimum, maximum):
        assert list(getattr(value(f"tensor {{ {name}: {number} }}").tensor, name)) == [number]
    for number in (minimum - 1, maximum + 1):
        with pytest.raises(CorruptFileError):
            value(f"tensor {{ {name}: {number} }}")


def bytes_of(text: bytes) -> bytes:
    return unescape(text, 0, len(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (rb"plain", b"plain"),
        (rb"\n\t\\\"\'\?", b"\n\t\\\"'?"),
        (rb"\0", b"\0"),
        # An octal escape has at most three digits.
        (rb"\1018", b"A8"),
        (rb"\7", b"\7"),
        (rb"\377", b"\xff"),
        (rb"\xff\xFg", b"\xff\x0fg"),
        (rb"\u00e9", b"\xc3\xa9"),
        (rb"\U0010ffff", b"\xf4\x8f\xbf\xbf"),
        # An escaped backslash does not start an escape.
        (rb"\\101", b"\\101"),
        (rb"\\\101", b"\\A"),
    ],
)
def test_escapes_are_decoded(text: bytes, expected: bytes) -> None:
    assert bytes_of(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (rb"\400", r"the escape \400 is beyond one byte"),
        (rb"\777", r"the escape \777 is beyond one byte"),
        (rb"\ud800", r"the escape \ud800 is not a character"),
        (rb"\udfff", r"the escape \udfff is not a character"),
        (rb"\U00110000", r"the escape \U00110000 is not a character"),
        (rb"\q", r"the escape \q is unknown"),
        (b"a\\", "the escape \\ is unknown"),
    ],
)
def test_invalid_escapes_are_refused(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match="escape") as error:
        bytes_of(text)
    assert str(error.value) == message


@pytest.mark.parametrize("code", [0xD7FF, 0xE000])
def test_characters_next_to_the_surrogates_are_valid(code: int) -> None:
    assert bytes_of(rb"\u%04x" % code) == chr(code).encode()


def test_long_strings_are_split_between_escapes() -> None:
    count = 1 << 19
    text = rb"ab\\\101\377c\\\\d\u00e9e"
    assert bytes_of(text * count) == b"ab\\A\xffc\\\\d\xc3\xa9e" * count


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b'"a" "b"', 2),
        (rb'"a\"b"', 5),
        (rb'"a\\" "', 4),
        (rb'"a\\\" "', 7),
        (b"'a\"b'", 4),
        (b'"a', None),
        (b'"a\n"', None),
    ],
)
def test_literal_ends_at_its_quote_on_the_same_line(data: bytes, end: int | None) -> None:
    assert literal_end(data, 0) == end


# TFT_PRODUCT of a TFT_TENSOR of TFT_FLOAT and of an unknown type.
TYPE = bytes.fromhex("08031208" + "08e8071203" + "08d201" + "1203" + "08d836")
DEBUG = b"\x0a\x03one\x12\x04body"
# Type and shape of a resource.
HANDLE = b"\x08\x01\x12\x04\x12\x02\x08\x02"
UNREADABLE = [b"\x08", b"\x0f\x0f", b"\x0a\x02\xff\xfe", b"\x12\x05\x08"]


def _graph(debug: tuple[bytes, bytes], handle: bytes = HANDLE) -> Graph:
    signature = OpDef("f", (ArgDef("a", DType.RESOURCE, handle_data=(handle,)),), ())
    body = (Node("n", "NoOp", debug_info=debug),)
    library = Library({"f": Function(signature, body, {}, {}, {}, {}, {})})
    return Graph([Node("first", "NoOp"), Node("a", "NoOp", debug_info=debug)], library)


def _round_trip(graph: Graph, folder: Path) -> tuple[str, Graph]:
    path = folder / "graph.pbtxt"
    write_graph(path, graph, as_text=True)
    return path.read_text(), read_graph(path)


def test_types_and_debug_records_are_written_as_text(tmp_path: Path) -> None:
    graph = _graph((DEBUG, TYPE))
    text, copy = _round_trip(graph, tmp_path)
    assert "experimental_type {\n    type_id: TFT_PRODUCT\n    args {\n" in text
    assert "type_id: 7000\n" in text
    assert 'experimental_debug_info {\n    original_node_names: "one"\n' in text
    assert "handle_data {\n          dtype: DT_FLOAT\n" in text
    assert graph_to_bytes(copy) == graph_to_bytes(graph)


@pytest.mark.parametrize("unreadable", UNREADABLE)
def test_unreadable_records_are_omitted_only_from_text(unreadable: bytes, tmp_path: Path) -> None:
    graph = _graph((unreadable, TYPE), UNREADABLE[0])
    copy = _round_trip(graph, tmp_path)[1]
    assert copy["a"].debug_info == (b"", TYPE)
    assert copy.library.functions["f"].nodes[0].debug_info == (b"", TYPE)
    assert copy.library.functions["f"].signature.inputs[0].handle_data == ()
    write_graph(tmp_path / "graph.pb", graph)
    assert read_graph(tmp_path / "graph.pb")["a"].debug_info == (unreadable, TYPE)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ("experimental_type { type_id: TFT_TENSOR }", b"\x08\xe8\x07"),
        ('experimental_type < s: "x" >', b"\x1a\x01x"),
        ("experimental_type { }", b""),
        ("experimental_type { type_id: TFT_OF_A_LATER_RELEASE }", b""),
        ("experimental_type { later { field: 3 } }", b""),
        # As older versions wrote it.
        ('experimental_type: "\\010\\003"', b"\x08\x03"),
    ],
)
def test_known_types_are_read(record: str, expected: bytes, tmp_path: Path) -> None:
    path = tmp_path / "graph.pbtxt"
    path.write_text(f'node {{ name: "a" op: "NoOp" {record} }}')
    assert read_graph(path)["a"].debug_info == (b"", expected)
