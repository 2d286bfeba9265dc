"""Lookup tables in LiteRT's interpreter and in our kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import ModelRecord, text_bytes
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import converted, to_calibrate
from mobileprep.litert.prepare import CutInput
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from mobileprep.runtime.engines.litert_engine import LiteRtModel
from tests.litert.graphs import codes, model, op
from tests.litert.one_op import check_graph, numbers
from tests.ops.lookup.test_tables import INT64, STRING, filled, from_file, table, text_const
from tests.ops.strings.test_conversion import texts
from tests.transforms.graphs import const, node

WORDS = texts("no", "maybe", "yes", "")
NUMBERS = np.array([[9, 5], [3, 2**40]])


def check(graph: Graph, words: Array, outputs: Sequence[str]) -> ModelRecord:
    """Convert a graph with open shapes, and compare its results."""
    shapes = {"words": (-1,) * words.ndim}
    return check_graph(graph, {"words": words}, outputs, 1e-6, shapes=shapes)


def naming(keys: Sequence[int] = (5, 9), fill: str = "InitializeTableV2", **options: Any) -> Graph:
    """Build a table from integers to strings."""
    names = text_const("names", texts(*(f"n{i}\0\u00e9" for i in keys)))
    inputs = [const("keys", list(keys), np.int64), names]
    return table(
        [*inputs, node("fill", fill, "table keys names", T=None)],
        key=INT64,
        value=STRING,
        **options,
    )


@pytest.mark.parametrize("older", [False, True])
def test_lookup_of_strings(older: bool) -> None:
    record = check(filled(older=older), WORDS, ["find", "size"])
    assert sorted(codes(record)) == [
        *("CALL_ONCE", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_SIZE", "RESHAPE")
    ]
    assert codes(record)[0] == "CALL_ONCE"
    assert codes(record, 1) == ["HASHTABLE", "HASHTABLE_IMPORT"]
    assert dict(record.metadata)["min_runtime_version"].rstrip(b"\0") == b"2.5.0"
    assert bytes(model_bytes(record)) == bytes(
        model_bytes(model(filled(older=older), ["words"], ["find", "size"], {"words": (-1,)}))
    )


def test_lookup_of_integers() -> None:
    check(naming(), NUMBERS, ["find", "size"])


@pytest.mark.parametrize("kind", ["LookupTableImportV2", "LookupTableInsertV2"])
def test_mutable_table_that_never_changes(kind: str) -> None:
    check(naming(fill=kind, kind="MutableHashTable"), NUMBERS, ["find"])


def test_table_from_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(b"yes\nno\n")
    check(from_file(path, key=STRING, value=INT64), WORDS, ["find"])


def test_lookup_result_is_used() -> None:
    rows = [
        const("weights", numbers(9, 3), np.float32),
        const("zero", 0, np.int64),
        op("known", "Maximum", ["find", "zero"], T=INT64),
        const("axis", 0, np.int32),
        op("row", "GatherV2", ["weights", "known", "axis"], Tparams=DType.FLOAT, Tindices=INT64),
        op("y", "Tanh", ["row"], T=DType.FLOAT),
    ]
    check(Graph([*filled(), *rows]), WORDS, ["y"])


def test_tables_with_the_same_shared_name_are_one_table() -> None:
    first = list(naming())
    second = [
        node(
            "again", "HashTableV2", T=None, key_dtype=INT64, value_dtype=STRING, shared_name="table"
        ),
        node("same", "LookupTableFindV2", "again words default", T=None, Tin=INT64, Tout=STRING),
        node("other", "HashTableV2", T=None, key_dtype=INT64, value_dtype=STRING),
        text_const("others", texts("x", "")),
        node("more", "InitializeTableV2", "other keys others", T=None),
        node("third", "LookupTableFindV2", "other words default", T=None, Tin=INT64, Tout=STRING),
    ]
    record = check(Graph([*first, *second]), NUMBERS, ["find", "same", "third"])
    assert codes(record).count("HASHTABLE") == codes(record).count("CALL_ONCE") == 2


def test_computed_entries_are_folded() -> None:
    entries = [
        text_const("keys", texts("yes", "no")),
        const("start", 0, np.int32),
        const("limit", 2, np.int32),
        const("step", 1, np.int32),
        node("range", "Range", "start limit step", T=None, Tidx=DType.INT32),
        node("values", "Cast", "range", T=None, SrcT=DType.INT32, DstT=INT64),
        node("fill", "InitializeTableV2", "table keys values", T=None, Tkey=STRING, Tval=INT64),
    ]
    check(table(entries), WORDS, ["find", "size"])


def refusal(graph: Graph, *outputs: str) -> str:
    with pytest.raises(UnsupportedError) as caught:
        model(graph, ["words"], outputs or ["find"], {"words": (-1,)})
    return f"{caught.value.message}; {caught.value.hint}"


def test_other_types_are_refused() -> None:
    values = const("values", [1.0, 2.0], np.float32)
    keys = text_const("keys", texts("yes", "no"))
    fill = node("fill", "InitializeTableV2", "table keys values", T=None)
    message = refusal(table([keys, values, fill], value=DType.FLOAT))
    assert "'table': LiteRT has tables from string to int64 and from int64 to string" in message
    assert "not from string to float32; look up in the app" in message


def test_table_that_changes_is_refused() -> None:
    later = node("later", "LookupTableInsertV2", "table words number", T=None)
    graph = Graph([*filled(kind="MutableHashTable"), const("number", [1], np.int64), later])
    assert "'table': its entries change while the graph runs" in refusal(graph)


def test_table_with_computed_entries_is_refused() -> None:
    number = node("number", "Placeholder", T=None, dtype=INT64)
    fill = node("fill", "InitializeTableV2", "table words number", T=None)
    assert "'fill' fills it with values that are not constant" in refusal(table([number, fill]))


def test_table_without_entries_is_refused() -> None:
    assert "nothing fills it before the graph runs" in refusal(table([]))


def test_missing_vocabulary_file_is_named(tmp_path: Path) -> None:
    message = refusal(from_file(tmp_path / "words.txt", key=STRING, value=INT64))
    assert "'table'" in message
    assert "words.txt" in message
    assert "put 'words.txt' next to the model, or in a directory `assets` there" in message


def test_key_with_two_values_is_invalid() -> None:
    keys = text_const("keys", texts("a", "a"))
    values = const("values", [7, 8], np.int64)
    fill = node("fill", "InitializeTableV2", "table keys values", T=None)
    with pytest.raises(InvalidGraphError, match="key b'a' has two values"):
        model(table([keys, values, fill]), ["words"], ["find"])


def test_entries_of_another_type_are_invalid() -> None:
    entries = [text_const("keys", texts("a")), const("values", [1.5], np.float32)]
    fill = node("fill", "InitializeTableV2", "table keys values", T=None)
    with pytest.raises(InvalidGraphError, match="entries are of float64, not of int64"):
        model(table([*entries, fill]), ["words"], ["find"])


@pytest.mark.parametrize("flex", [False, True])
def test_lookup_in_a_branch_is_refused(flex: bool) -> None:
    branch = [
        node("flag", "Placeholder", T=None, dtype=DType.BOOL),
        node("switch/table", "Switch", "table flag", T=DType.RESOURCE),
        node("switch/words", "Switch", "words flag", T=STRING),
        node("switch/default", "Switch", "default flag", T=INT64),
        node(
            "found",
            "LookupTableFindV2",
            "switch/table:1 switch/words:1 switch/default:1",
            T=None,
            Tin=STRING,
            Tout=INT64,
        ),
        node("merge", "Merge", "switch/default found", T=INT64, N=2),
    ]
    specs = [CutInput("words", (-1,)), CutInput("flag", ())]
    with pytest.raises(UnsupportedError) as caught:
        converted(Graph([*filled(), *branch]), specs, ["merge"], flex=flex)
    assert "look up outside of loops and branches" in f"{caught.value}{caught.value.hint}"


def test_tables_do_not_use_the_flex_delegate() -> None:
    record = converted(filled(), [CutInput("words", (-1,))], ["find"], flex=True)
    assert codes(record) == ["CALL_ONCE", "HASHTABLE", "HASHTABLE_FIND"]


def test_other_string_ops_are_refused() -> None:
    length = op("length", "StringLength", ["words"])
    assert "StringLength 'length'" in refusal(Graph([*filled(), length]), "find", "length")
    joined = op("joined", "ExpandDims", ["words", "axis"], T=STRING, Tdim=DType.INT32)
    graph = Graph([*filled(), const("axis", 0, np.int32), joined])
    assert "mobileprep converts no operators on strings except lookups" in refusal(
        graph, "find", "joined"
    )
    alone = Graph(
        [node("words", "Placeholder", T=None, dtype=STRING), op("y", "Identity", ["words"])]
    )
    assert "LiteRT has no operators on string" in refusal(alone, "y")


def test_engine_runs_the_file(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    path = tmp_path / "m.tflite"
    path.write_bytes(model_bytes(model(naming(), ["words"], ["find"], {"words": (-1, -1)})))
    results = LiteRtModel(path).run(["find"], {"words": NUMBERS})[0]
    assert results.tolist() == [[b"n9\0\xc3\xa9", b"n5\0\xc3\xa9"], [b"?", b"?"]]


def test_strings_outside_of_their_buffer_are_refused(tmp_path: Path) -> None:
    content = bytearray(model_bytes(model(naming(), ["words"], ["find"])))
    place = content.index(text_bytes(texts("n5\0\u00e9", "n9\0\u00e9").tolist()))
    content[place + 8 : place + 12] = b"\xff\xff\xff\x7f"
    path = tmp_path / "m.tflite"
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match="has strings outside of its buffer"):
        LiteRtModel(path)


def test_calibration_graph_fills_its_tables() -> None:
    more = [
        node("size_of", "Cast", "find", T=None, SrcT=INT64, DstT=DType.FLOAT),
        const("two", 2, np.float32),
        op("y", "Mul", ["size_of", "two"], T=DType.FLOAT),
    ]
    specs = [CutInput("words", (-1,))]
    calibration = to_calibrate(Graph([*filled(), *more]), specs, ["y"])
    values = NumpyEngine(calibration.graph, "test").run(["y"], {"words": WORDS})[0]
    assert values.tolist() == [16, -2, 14, -2]
    assert ("y", 0) in calibration.tensors
