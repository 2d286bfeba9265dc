"""Lookup tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.tensor import Tensor
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.cases import case, case_tests, unlike
from tests.ops.strings.test_conversion import scalar, texts
from tests.transforms.graphs import const, node

INT64, STRING = DType.INT64, DType.STRING


def text_const(name: str, value: np.ndarray) -> Node:
    return constant(name, Tensor.of(value))


def table(
    fill: list[Node],
    *,
    key: DType = STRING,
    value: DType = INT64,
    older: bool = False,
    kind: str = "HashTable",
) -> Graph:
    """A table with nodes that fill it, a lookup of the placeholder "words", and its size."""
    end = "" if older else "V2"
    kinds = {"T": None, "key_dtype": key, "value_dtype": value}
    default = (
        text_const("default", scalar("?")) if value is STRING else const("default", -1, np.int64)
    )
    return Graph(
        [
            node("table", f"{kind}{end}", **kinds),
            *fill,
            node("words", "Placeholder", T=None, dtype=key),
            default,
            node(
                "find", f"LookupTableFind{end}", "table words default", T=None, Tin=key, Tout=value
            ),
            node("size", f"LookupTableSize{end}", "table", T=None),
        ]
    )


def filled(**options) -> Graph:
    end = "" if options.get("older") else "V2"
    keys = text_const("keys", texts("yes", "no"))
    values = const("values", [7, 8], np.int64)
    fill = node(
        "fill", f"InitializeTable{end}", "table keys values", T=None, Tkey=STRING, Tval=INT64
    )
    return table([keys, values, fill], **options)


@pytest.mark.parametrize("older", [False, True])
def test_lookup(older: bool) -> None:
    runner = Interpreter(filled(older=older))
    runner.run(["fill"], {})
    words = texts("no", "maybe", "yes").reshape(3, 1)
    result = runner.run(["find", "size"], {"words": words})
    assert result[0].tolist() == [[8], [-1], [7]]
    assert (result[0].dtype, result[1].tolist()) == (np.int64, 2)


def test_lookup_in_uninitialized_table_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="looks into a table that was not filled"):
        Interpreter(filled()).run(["find"], {"words": texts("no")})


def test_table_can_be_filled_twice_with_equal_values() -> None:
    runner = Interpreter(filled())
    runner.run(["fill"], {})
    runner.run(["fill"], {})


def test_conflicting_key_is_refused() -> None:
    keys = text_const("keys", texts("a", "a"))
    values = const("values", [7, 8], np.int64)
    fill = node("fill", "InitializeTableV2", "table keys values", T=None, Tkey=STRING, Tval=INT64)
    with pytest.raises(InvalidGraphError, match="key b'a' has two values"):
        Interpreter(table([keys, values, fill])).run(["fill"], {})


def from_file(path: Path, *, key: DType, value: DType, **attrs) -> Graph:
    settings = {"key_index": -2, "value_index": -1, "vocab_size": -1, "delimiter": "\t", **attrs}
    file = text_const("file", scalar(str(path)))
    fill = node("fill", "InitializeTableFromTextFileV2", "table file", T=None, **settings)
    return table([file, fill], key=key, value=value)


def test_table_from_file_lines(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary"
    path.write_bytes(b"cat\r\ndog\nbird")
    runner = Interpreter(from_file(path, key=STRING, value=INT64))
    runner.run(["fill"], {})
    result = runner.run(["find"], {"words": texts("bird", "cat", "fish")})[0]
    assert result.tolist() == [2, 0, -1]


def test_offset_is_added_to_line_numbers_only(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary"
    path.write_bytes(b"cat\t7\ndog\t8\n")
    for column, expected in ((-1, [6, 5]), (1, [8, 7])):
        graph = from_file(path, key=STRING, value=INT64, key_index=0, value_index=column, offset=5)
        runner = Interpreter(graph)
        runner.run(["fill"], {})
        assert runner.run(["find"], {"words": texts("dog", "cat")})[0].tolist() == expected


@pytest.mark.parametrize(
    ("content", "message"), [("", "has no lines"), ("cat\n\ndog\n", "line 2 is empty")]
)
def test_invalid_file_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "vocabulary"
    path.write_text(content)
    with pytest.raises(InvalidGraphError, match=message):
        Interpreter(from_file(path, key=STRING, value=INT64)).run(["fill"], {})


def test_table_from_file_columns(tmp_path: Path) -> None:
    path = tmp_path / "columns"
    path.write_text("5,cat,x\n9,dog,y\n3,bird,z\n")
    graph = from_file(
        path, key=INT64, value=STRING, key_index=0, value_index=1, delimiter=",", vocab_size=2
    )
    runner = Interpreter(graph)
    runner.run(["fill"], {})
    result = runner.run(["find"], {"words": np.array([9, 5, 3])})[0]
    assert result.tolist() == [b"dog", b"cat", b"?"]


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"vocab_size": 3}, "has 2 lines, and 3 are needed"),
        ({"value_index": 4}, "line 1 has no column 4"),
        ({"value_index": 0}, "holds b'cat', which is not of dtype int64"),
    ],
)
def test_file_that_does_not_match_the_attributes_is_refused(
    tmp_path: Path, attrs: dict, message: str
) -> None:
    path = tmp_path / "vocabulary"
    path.write_text("cat\ndog\n")
    with pytest.raises(InvalidGraphError, match=message):
        Interpreter(from_file(path, key=STRING, value=INT64, **attrs)).run(["fill"], {})


def test_missing_file_is_named(tmp_path: Path) -> None:
    graph = from_file(tmp_path / "none", key=STRING, value=INT64)
    with pytest.raises(CorruptFileError, match="none"):
        Interpreter(graph).run(["fill"], {})


def test_mutable_table() -> None:
    kinds = {"T": None, "key_dtype": INT64, "value_dtype": INT64}
    moves = {"T": None, "Tin": INT64, "Tout": INT64}
    graph = Graph(
        [
            node("table", "MutableHashTableV2", **kinds),
            const("keys", [1, 2], np.int64),
            const("values", [10, 20], np.int64),
            node("insert", "LookupTableInsertV2", "table keys values", **moves),
            const("new", [3], np.int64),
            node("replace", "LookupTableImportV2", "table new new", **moves),
            node("size", "LookupTableSizeV2", "table", T=None),
        ]
    )
    runner = Interpreter(graph)
    assert runner.run(["size"], {})[0] == 0
    runner.run(["insert"], {})
    assert runner.run(["size"], {})[0] == 2
    runner.run(["replace"], {})
    assert runner.run(["size"], {})[0] == 1


KINDS = {"key_dtype": DType.STRING, "value_dtype": DType.INT64}

OP_CASES = [
    case("HashTableV2", [], [()], **KINDS),
    case("MutableHashTableV2", [], [()], **KINDS),
    unlike(case("HashTable", [], [(2,)], **KINDS)),
    unlike(case("MutableHashTable", [], [(2,)], **KINDS)),
    case("InitializeTable", [(), (3,), (3,)], []),
    case("InitializeTableV2", [(), (3,), (3,)], []),
    case("InitializeTableFromTextFile", [(), ()], [], key_index=0, value_index=1),
    case("InitializeTableFromTextFileV2", [(), ()], [], key_index=0, value_index=1),
    *(case(f"LookupTable{op}", [(2,), (3,), (3,)], []) for op in ("Import", "Insert")),
    *(case(f"LookupTable{op}V2", [(), (3,), (3,)], []) for op in ("Import", "Insert")),
    case("LookupTableFind", [(2,), (3,), ()], [None]),
    unlike(case("LookupTableFindV2", [(), (3,), ()], [(3,)])),
    unlike(case("LookupTableFindV2", [(), (3,), (2,)], [None])),
    case("LookupTableSize", [(2,)], [()]),
    case("LookupTableSizeV2", [()], [()]),
]

test_shapes_and_costs = case_tests(OP_CASES)
