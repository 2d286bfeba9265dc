"""Checkpoint keys of variables from restore ops, slices, object graphs, and names."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, InvalidGraphError
from mobileprep.formats.checkpoint import open_checkpoint
from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import saved_model_pb2 as saved_pb
from mobileprep.freezing.model import SavedValue, imported_from, restored_from
from mobileprep.freezing.source import keys_by_full_name, slices_by_name
from mobileprep.graph.graph import Graph
from tests.formats.checkpoint_writer import write_bundle
from tests.freezing.graphs import (
    FLOAT,
    const,
    frozen,
    handle,
    node,
    parsed,
    reading,
    ref_variable,
    source,
)
from tests.runtime.functions.texts import call

STRING = DType.STRING
FULL = np.arange(12, dtype=np.float32).reshape(4, 3)


def strings(name, *values):
    return const(name, np.array([value.encode() for value in values], dtype=object))


def saver(prefix, **keys):
    """Return ops that restore each variable from another key."""
    nodes = [strings(f"{prefix}/names", *keys.values())]
    restore = node(f"{prefix}/RestoreV2", "RestoreV2", "file", f"{prefix}/names", "slices")
    assigns = []
    for i, name in enumerate(keys):
        nodes.append(node(f"{prefix}/a{i}", "Assign", name, f"{prefix}/RestoreV2:{i}", T=FLOAT))
        assigns.append(f"^{prefix}/a{i}")
    return [*nodes, restore, node(f"{prefix}/restore_all", "NoOp", *assigns)]


def renamed(**keys):
    nodes = [const("file", np.array(b"model", dtype=object)), strings("slices", "", "")]
    return [*nodes, ref_variable("w", 4, 3), *saver("save", **keys)]


def test_keys_come_from_restore_ops(tmp_path):
    model = source(renamed(w="old/name"), {"old/name": FULL, "w": FULL * 0}, tmp_path)
    result = frozen(model, "w/read")
    assert dict(result.variables) == {"w": "old/name"}
    np.testing.assert_array_equal(result.graph["w"].attr_tensor("value").array(), FULL)


def test_key_that_is_not_in_the_checkpoint_is_ignored(tmp_path):
    model = source(renamed(w="old/name"), {"w": FULL}, tmp_path)
    assert dict(frozen(model, "w/read").variables) == {"w": "w"}


def test_saver_is_selected_by_its_restore_op(tmp_path):
    nodes = [*renamed(w="first"), *saver("save_1", w="second")]
    tensors = {"first": FULL, "second": FULL + 1}
    assert dict(frozen(source(nodes, tensors, tmp_path), "w/read").variables) == {"w": "first"}
    chosen = frozen(
        source(nodes, tensors, tmp_path), "w/read", restore_op_name="save_1/restore_all"
    )
    assert dict(chosen.variables) == {"w": "second"}
    meta = source(nodes, tensors, tmp_path, restore_op="save_1/restore_all")
    assert dict(frozen(meta, "w/read").variables) == {"w": "second"}


def test_resource_variables_are_restored_through_identities():
    nodes = [
        handle("h", 2),
        strings("names", "key"),
        strings("slices", "4 3 0,2:-"),
        node("restore", "RestoreV2", "file", "names", "slices"),
        node("same", "Identity", "restore", T=FLOAT),
        node("set", "AssignVariableOp", "h", "same", dtype=FLOAT),
    ]
    graph = Graph([const("file", np.array(b"", dtype=object)), *nodes])
    assert restored_from(graph, "") == {"h": [SavedValue("key", "4 3 0,2:-")]}


@pytest.mark.parametrize(
    ("names", "op", "index"),
    [
        (strings("names"), "RestoreV2", 0),
        (strings("names", "key"), "RestoreV2", 3),
        (strings("names", "key"), "Add", 0),
        (node("names", "Const", dtype=STRING, value=np.zeros(1, np.float32)), "RestoreV2", 0),
    ],
    ids=["no-names", "wrong-index", "other-op", "numbers-as-names"],
)
def test_invalid_restore_ops_are_ignored(names, op, index):
    nodes = [
        *ref_variable("w", 2),
        names,
        node("restore", op, "file", "names", "names"),
        node("set", "Assign", "w", f"restore:{index}", T=FLOAT),
        const("file", np.array(b"", dtype=object)),
    ]
    assert restored_from(Graph(nodes), "") == {}


def test_slices_of_a_partitioned_variable_are_read(tmp_path):
    nodes = [ref_variable("w/part_0", 1, 3), ref_variable("w/part_1", 3, 3)]
    keys = {"w/part_0": SavedValue("w", "4 3 0,1:0,3"), "w/part_1": SavedValue("w", "4 3 1,3:0,3")}
    joined = node("y", "ConcatV2", "w/part_0/read", "w/part_1/read", "zero", T=FLOAT, N=2)
    nodes = [*nodes, const("zero", np.int32(0)), joined.with_attrs()]
    graph = frozen(source(nodes, {"w": FULL}, tmp_path, keys=keys), "y").graph
    parts = [graph[f"w/part_{i}"].attr_tensor("value").array() for i in range(2)]
    np.testing.assert_array_equal(np.concatenate(parts), FULL)


def test_mismatched_slice_is_refused(tmp_path):
    keys = {"w": SavedValue("w", "5 3 0,1:0,3")}
    model = source([ref_variable("w", 1, 3)], {"w": FULL}, tmp_path, keys=keys)
    with pytest.raises(InvalidGraphError, match="'5 3 0,1:0,3' does not fit"):
        frozen(model, "w/read")


def test_restore_ops_in_functions_are_found():
    restore = """function { signature { name: "f" input_arg { name: "file" type: DT_STRING }
          input_arg { name: "to" type: DT_RESOURCE } output_arg { name: "out" type: DT_STRING } }
        node_def { name: "n" op: "Const" attr { key: "dtype" value { type: DT_STRING } }
          attr { key: "value" value { tensor { dtype: DT_STRING tensor_shape { dim { size: 1 } }
            string_val: "layer/.ATTRIBUTES/VARIABLE_VALUE" } } } }
        node_def { name: "r" op: "RestoreV2" input: "file" input: "n:output:0" input: "n:output:0"
          attr { key: "dtypes" value { list { type: DT_FLOAT } } } }
        node_def { name: "i" op: "Identity" input: "r:tensors:0"
          attr { key: "T" value { type: DT_FLOAT } } }
        node_def { name: "a" op: "AssignVariableOp" input: "to" input: "i:output:0"
          attr { key: "dtype" value { type: DT_FLOAT } } }
        ret { key: "out" value: "file" } control_ret { key: "a" value: "a" } }"""
    graph = parsed(
        'node { name: "file" op: "Placeholder" attr { key: "dtype" value { type: DT_STRING } } }'
        'node { name: "v" op: "VarHandleOp" attr { key: "dtype" value { type: DT_FLOAT } } }'
        + call("restore", "f", "file", "v", op="StatefulPartitionedCall")
        + f"library {{ {restore} }}"
    )
    assert restored_from(graph, "restore")["v"][0].key == "layer/.ATTRIBUTES/VARIABLE_VALUE"


def objects(*attributes):
    record = saved_pb.TrackableObjectGraph()
    for full_name, key in attributes:
        record.nodes.add().attributes.add(full_name=full_name, checkpoint_key=key)
    return np.array(record.SerializeToString(), dtype=object)


def checkpoint_with(record, folder, *keys):
    tensors = {key: np.zeros(2, np.float32) for key in keys}
    write_bundle(folder / "c", {"_CHECKPOINTABLE_OBJECT_GRAPH": record, **tensors})
    return open_checkpoint(folder / "c")


def test_object_graph_has_keys_of_unambiguous_variables(tmp_path):
    record = objects(
        ("layer/kernel", "a/kernel"), ("twice", "b"), ("twice", "c"), ("", "d"), ("Variable", "e")
    )
    nodes = [
        handle("kernel", 2, shared_name="layer/kernel"),
        handle("Variable", dtype=STRING),  # The path of an asset. The saved variable is a float.
        handle("twice", 2),
        handle("first", 2, shared_name="same"),
        handle("second", 2, shared_name="same"),
    ]
    checkpoint = checkpoint_with(record, tmp_path, "a/kernel", "b", "c", "d", "e")
    keys = keys_by_full_name(checkpoint, Graph(nodes))
    assert keys == {"kernel": SavedValue("a/kernel")}


def test_variable_is_read_from_an_object_checkpoint(tmp_path):
    key = "a/kernel/.ATTRIBUTES/VARIABLE_VALUE"
    tensors = {"_CHECKPOINTABLE_OBJECT_GRAPH": objects(("w", key)), key: FULL}
    write_bundle(tmp_path / "ckpt", tensors)
    nodes = [handle("w", 4, 3), reading("y", "w")]
    keys = keys_by_full_name(open_checkpoint(tmp_path / "ckpt"), Graph(nodes))
    model = source(nodes, tensors, tmp_path, keys=keys)
    assert dict(frozen(model, "y").variables) == {"w": key}


def test_damaged_object_graph_is_refused(tmp_path):
    record = np.array(b"\x0a\xff", dtype=object)
    with pytest.raises(CorruptFileError, match="the graph of saved objects is damaged"):
        keys_by_full_name(checkpoint_with(record, tmp_path), Graph())


def test_checkpoint_without_an_object_graph_has_no_keys(tmp_path):
    write_bundle(tmp_path / "c", {"w": FULL})
    assert keys_by_full_name(open_checkpoint(tmp_path / "c"), Graph([handle("w", 4, 3)])) == {}


def pieces(*shapes):
    nodes = [handle(f"emb/part_{i}", *shape) for i, shape in enumerate(shapes)]
    return Graph([*nodes, handle("other", 2)])


def opened(folder, **tensors):
    write_bundle(folder / "c", tensors)
    return open_checkpoint(folder / "c")


def test_slices_of_partitions_follow_from_their_shapes(tmp_path):
    checkpoint = opened(tmp_path, emb=FULL)
    assert slices_by_name(checkpoint, pieces((1, 3), (3, 3))) == {
        "emb/part_0": SavedValue("emb", "4 3 0,1:0,3"),
        "emb/part_1": SavedValue("emb", "4 3 1,3:0,3"),
    }
    assert slices_by_name(checkpoint, pieces((4, 2), (4, 1))) == {
        "emb/part_0": SavedValue("emb", "4 3 0,4:0,2"),
        "emb/part_1": SavedValue("emb", "4 3 0,4:2,1"),
    }


@pytest.mark.parametrize("shapes", [[(1, 3), (2, 3)], [(4, 3, 1)], [(2, 3), (2, 2)], [(4,)]])
def test_partitions_that_do_not_tile_the_tensor_are_ignored(tmp_path, shapes):
    assert slices_by_name(opened(tmp_path, emb=FULL), pieces(*shapes)) == {}


def test_incomplete_partitions_are_ignored(tmp_path):
    graph = Graph([handle("emb/part_1", 4, 3)])
    assert slices_by_name(opened(tmp_path, emb=FULL), graph) == {}


def test_separately_saved_partitions_are_not_slices(tmp_path):
    tensors = {"emb": FULL, "emb/part_0": FULL}
    assert slices_by_name(opened(tmp_path, **tensors), pieces((4, 3))) == {}


@pytest.mark.parametrize(
    ("op", "inputs", "is_table"),
    [
        ("LookupTableImportV2", 3, True),
        ("LookupTableImportV2", 2, False),
        ("LookupTableInsertV2", 3, False),
    ],
)
def test_tables_are_imported_by_ops_with_three_inputs(op, inputs, is_table):
    tensors = ["table", "save/RestoreV2", "save/RestoreV2:1"][:inputs]
    nodes = [
        const("file", np.array(b"model", dtype=object)),
        strings("slices", "", ""),
        strings("save/names", "keys", "values"),
        node("table", "HashTableV2"),
        node("save/RestoreV2", "RestoreV2", "file", "save/names", "slices"),
        node("save/import", op, *tensors),
        node("save/restore_all", "NoOp", "^save/import"),
    ]
    tables = imported_from(Graph(nodes), "save/restore_all")
    assert list(tables) == (["table"] if is_table else [])
