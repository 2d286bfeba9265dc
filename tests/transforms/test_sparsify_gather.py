"""sparsify_gather: hash tables in place of look-ups in columns of mostly zeros."""

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.verify import check_graph
from tests.formats.checkpoint_writer import write_bundle
from tests.transforms.graphs import apply, const, node, placeholder, shown

BOTH = pytest.mark.parametrize("tf115", [True, False])
COLUMN = np.array([[0], [3], [0], [0], [-1e-6], [-2]], np.float32)
GATHER = {"T": None, "Tparams": DType.FLOAT, "Tindices": DType.INT64}


def _ids(kind=DType.INT64):
    return placeholder("ids", kind)


def _weights(name="w", values=COLUMN):
    return [const(name, values), node(f"{name}/read", "Identity", name)]


def _graph(*more, values=COLUMN, **attrs):
    gather = node("out", "Gather", "w/read ids", **{**GATHER, **attrs})
    ids = _ids(attrs.get("Tindices", DType.INT64))
    return Graph([ids, *_weights(values=values), gather, *more])


def _apply(graph, **options):
    return apply("sparsify_gather", graph, inputs=("ids",), **options)


@BOTH
def test_golden(tf115):
    result = _apply(_graph(), tf115=tf115)
    assert result.matched == 1
    assert shown(result.graph) == (
        "ids = Placeholder()\n"
        "w/indices = Const() value=int64[2]\n"
        "w/values = Const() value=float32[2]\n"
        "w/HashTable = HashTable() key_dtype=int64 value_dtype=float32\n"
        "w/InitializeTable = InitializeTable(w/HashTable, w/indices, w/values) "
        "Tkey=int64 Tval=float32\n"
        "out/LookupTableFind = LookupTableFind(w/HashTable, ids, out/Const) "
        "Tin=int64 Tout=float32\n"
        "out/Const = Const() value=float32[]:0\n"
        "out/ExpandDims/Const = Const() value=int32[]:-1\n"
        "out = ExpandDims(out/LookupTableFind, out/ExpandDims/Const) T=float32\n"
        "group_deps = NoOp(^w/InitializeTable)"
    )
    table = {n: result.graph[f"w/{n}"].attr_tensor("value").array() for n in ("indices", "values")}
    np.testing.assert_array_equal(table["indices"], [1, 5])
    np.testing.assert_array_equal(table["values"], [3, -2])


@BOTH
def test_a_column_of_zeros_gets_a_table_that_can_be_filled(tf115):
    after = _apply(_graph(values=np.zeros((3, 1))), tf115=tf115).graph
    np.testing.assert_array_equal(after["w/indices"].attr_tensor("value").array(), [0])
    np.testing.assert_array_equal(after["w/values"].attr_tensor("value").array(), [0])


@BOTH
def test_gather_v2_along_the_first_axis_is_one_too(tf115):
    gather = node("out", "GatherV2", "w/read ids axis", Taxis=DType.INT32, **GATHER)
    graph = Graph([_ids(), *_weights(), const("axis", 0, "int32"), gather])
    after = _apply(graph, tf115=tf115).graph
    assert after["out"].op == "ExpandDims"
    assert "axis" not in after


@BOTH
def test_the_initializer_joins_a_group_that_is_there(tf115):
    graph = _graph(node("init", "NoOp", "^ids", T=None))
    after = _apply(graph, group_init_node="init", tf115=tf115).graph
    assert [str(r) for r in after["init"].inputs] == ["^ids", "^w/InitializeTable"]


def test_where_nothing_fits_the_original_adds_a_group_and_a_recipe_nothing():
    graph = Graph([_ids(), node("out", "Identity", "ids", T=DType.INT64)])
    assert _apply(graph).graph is graph
    assert "group_deps" in _apply(graph, tf115=True).graph


@BOTH
def test_ids_of_four_bytes_are_cast(tf115):
    """The original gives them to a table that takes eight."""
    after = _apply(_graph(Tindices=DType.INT32), tf115=tf115).graph
    assert after["out/Cast"].attr_dtype("DstT") is DType.INT64
    assert str(after["out/LookupTableFind"].inputs[1]) == "out/Cast"


@BOTH
def test_look_ups_in_the_same_weights_share_a_table(tf115):
    """The original takes the weights from all but the first."""
    second = [
        node("w/again", "Identity", "w"),
        node("second", "Gather", "w/again ids", **GATHER),
        node("third", "Gather", "w/read ids", **GATHER),
        node("sum", "AddN", "out second third", N=3),
    ]
    result = _apply(_graph(*second), outputs=("sum",), tf115=tf115)
    check_graph(result.graph, "")
    assert result.matched == 3
    assert [n.op for n in result.graph].count("HashTable") == 1
    assert not {"w", "w/read", "w/again"} & {n.name for n in result.graph}


@BOTH
@pytest.mark.parametrize("source", ["w", "w/read"])
def test_weights_that_something_else_needs_stay(source, tf115):
    """The original takes them from whatever else uses them."""
    graph = _graph(node("other", "Neg", source))
    result = _apply(graph, outputs=("out", "other"), tf115=tf115)
    assert result.skipped == {"its weights are used elsewhere too": 1}
    assert result.graph["out"].op == "Gather"


@BOTH
@pytest.mark.parametrize("output", ["w:0", "w/read"])
def test_weights_that_are_fetched_stay(output, tf115):
    result = _apply(_graph(), outputs=("out", output), tf115=tf115)
    assert result.matched == 0
    assert result.graph["out"].op == "Gather"


def _other_axis():
    gather = node("out", "GatherV2", "w/read ids axis", Taxis=DType.INT32, **GATHER)
    return Graph([_ids(), *_weights(), const("axis", 1, "int32"), gather])


def _not_float():
    doubles = [const("w", COLUMN, np.float64), node("w/read", "Identity", "w")]
    return Graph([_ids(), *doubles, node("out", "Gather", "w/read ids", **GATHER)])


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (_graph(values=np.zeros((3, 2))), "its weights have not the shape [N, 1]"),
        (_graph(values=np.zeros(3)), "its weights have not the shape [N, 1]"),
        (_other_axis(), "it gathers along another axis than the first"),
        (_not_float(), "its weights are not float32"),
    ],
    ids=["two columns", "no column", "axis", "type"],
)
def test_other_lookups_fail_only_with_tf115(graph, reason):
    result = _apply(graph)
    assert result.graph is graph
    assert result.skipped == {reason: 1}
    with pytest.raises(TransformError, match="node 'out': it"):
        _apply(graph, tf115=True)


def _with_variable():
    """A variable with what training puts around it."""
    names = const("save/names", [b"other", b"w"], object)
    return Graph(
        [
            _ids(),
            node("w", "VariableV2", T=None, dtype=DType.FLOAT),
            node("w/start", "Fill", ""),
            node("w/Assign", "Assign", "w w/start"),
            node("w/read", "Identity", "w"),
            const("prefix", b"ckpt", object),
            names,
            const("save/slices", [b"", b""], object),
            node("save/Restore", "RestoreV2", "prefix save/names save/slices"),
            node("save/Assign_1", "Assign", "w save/Restore:1"),
            node("init", "NoOp", "^w/Assign"),
            node("out", "Gather", "w/read ids", **GATHER),
        ]
    )


def _checkpoint(tmp_path):
    write_bundle(tmp_path / "ckpt", {"other": np.zeros(2, np.float32), "w": COLUMN})
    return str(tmp_path / "ckpt")


@BOTH
def test_a_variable_is_read_from_the_checkpoint(tmp_path, tf115):
    result = _apply(_with_variable(), input_checkpoint=_checkpoint(tmp_path), tf115=tf115)
    np.testing.assert_array_equal(result.graph["w/indices"].attr_tensor("value").array(), [1, 5])
    left = {n.name for n in result.graph}
    # What only served the variable is gone; the restore op may serve others.
    assert not left & {"w", "w/start", "w/Assign", "w/read", "save/Assign_1", "init"}
    assert {"save/Restore", "save/names"} <= left


def test_a_variable_without_a_checkpoint_is_an_error():
    with pytest.raises(TransformError, match="the values of the variable 'w' are in no graph"):
        _apply(_with_variable())


def test_a_checkpoint_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(CorruptFileError):
        _apply(_with_variable(), input_checkpoint=str(tmp_path / "gone"))


@pytest.mark.parametrize("gone", ["save/Assign_1", "save/Restore"])
def test_a_variable_that_nothing_restores_is_an_error(tmp_path, gone):
    path = _checkpoint(tmp_path)
    nodes = [n for n in _with_variable() if n.name not in (gone, "save/Assign_1")]
    with pytest.raises(TransformError, match="no restore op of the graph fills the variable 'w'"):
        _apply(Graph(nodes), input_checkpoint=path)
