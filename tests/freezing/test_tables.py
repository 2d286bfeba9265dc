"""Lookup tables: initializers, files, and saved contents."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from mobileprep.errors import CorruptFileError, InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.freezing.model import Asset
from mobileprep.runtime.interpreter import Interpreter
from tests.freezing.graphs import (
    FLOAT,
    const,
    frozen,
    handle,
    listing,
    node,
    placeholder,
    reading,
    ref_variable,
    source,
)

STRING, INT = DType.STRING, DType.INT64
KINDS = {"key_dtype": STRING, "value_dtype": INT}
LINES = {"key_index": -2, "value_index": -1}


def table(name, path):
    return [
        node(name, "HashTableV2", **KINDS, shared_name=name),
        node(f"{name}/fill", "InitializeTableFromTextFileV2", name, path, **LINES),
    ]


def model(folder, *more, path=None, **fields):
    nodes = [
        placeholder("text", -1, dtype=STRING),
        path or const("path", np.array(b"/home/trainer/words.txt", dtype=object)),
        table("words", "path" if path is None else path.name),
        table("unused", "path" if path is None else path.name),
        const("minus", np.int64(-1)),
        node("ids", "LookupTableFindV2", "words", "text", "minus", Tin=STRING, Tout=INT),
        node("init", "NoOp", "^words/fill", "^unused/fill"),
        *more,
    ]
    asset = Asset("path:0" if path is None else f"{path.name}:0", "words.txt", folder / "words.txt")
    return source(nodes, init_ops=("init",), assets=(asset,), **fields)


def look_up(graph, ops, *words):
    """Initialize the tables of a frozen graph without files and look up words."""
    runner = Interpreter(graph)
    runner.run(list(ops), {})
    return runner.run(["ids"], {"text": np.array(words, dtype=object)})[0].tolist()


def test_used_tables_are_initialized_from_constants(tmp_path):
    (tmp_path / "words.txt").write_text("a\nb\n")
    result = frozen(model(tmp_path), "ids")
    assert result.init_ops == ("words/fill",)
    assert not {"unused", "init", "path"} & result.graph.by_name.keys()
    assert not result.assets
    assert listing(result.graph)[-5:] == [
        "words/fill/keys = Const()",
        "words/fill/values = Const()",
        "words/fill = InitializeTableV2(words, words/fill/keys, words/fill/values)",
        "minus = Const()",
        "ids = LookupTableFindV2(words, text, minus)",
    ]
    (tmp_path / "words.txt").unlink()
    assert look_up(result.graph, result.init_ops, b"b", b"c", b"a") == [1, -1, 0]


def test_file_of_a_fed_path_is_inlined(tmp_path):
    (tmp_path / "words.txt").write_text("a\n")
    result = frozen(model(tmp_path, path=placeholder("fed", dtype=STRING)), "ids")
    assert "fed" not in result.graph
    assert not result.assets
    assert look_up(result.graph, result.init_ops, b"a") == [0]


def test_file_of_a_path_in_a_variable_is_inlined(tmp_path):
    (tmp_path / "words.txt").write_text("a\n")
    variable = [
        placeholder("fed", dtype=STRING),
        handle("kept", dtype=STRING),
        node("set", "AssignVariableOp", "kept", "fed", dtype=STRING),
    ]
    read = reading("read", "kept", "^set", dtype=STRING)
    asset = Asset("fed:0", "words.txt", tmp_path / "words.txt")
    loaded = structs.replace(model(tmp_path, *variable, path=read), assets=(asset,))
    result = frozen(loaded, "ids")
    assert not {"kept", "read"} & result.graph.by_name.keys()
    assert not result.assets
    assert not result.warnings
    assert look_up(result.graph, result.init_ops, b"a") == [0]


def test_files_of_the_same_name_are_separate(tmp_path):
    for folder, words in (("first", "a\nb\n"), ("second", "b\na\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "words.txt").write_text(words)
    nodes = [
        placeholder("text", -1, dtype=STRING),
        const("minus", np.int64(-1)),
        const("path", np.array(b"words.txt", dtype=object)),
        const("path_1", np.array(b"words.txt", dtype=object)),
        table("words", "path"),
        table("others", "path_1"),
        node("ids", "LookupTableFindV2", "words", "text", "minus", Tin=STRING, Tout=INT),
        node("other_ids", "LookupTableFindV2", "others", "text", "minus", Tin=STRING, Tout=INT),
    ]
    assets = tuple(
        Asset(f"{name}:0", f"{folder}/words.txt", tmp_path / folder / "words.txt")
        for name, folder in (("path", "first"), ("path_1", "second"))
    )
    result = frozen(source(nodes, assets=assets), "ids", "other_ids")
    runner = Interpreter(result.graph)
    runner.run(list(result.init_ops), {})
    ids = runner.run(["ids", "other_ids"], {"text": np.array([b"a"], dtype=object)})
    assert [array.tolist() for array in ids] == [[0], [1]]


def test_file_of_a_read_file_op_is_inlined(tmp_path):
    (tmp_path / "words.txt").write_bytes(b"\0model\n")
    result = frozen(model(tmp_path, node("content", "ReadFile", "path")), "content")
    assert listing(result.graph) == ["content = Const()"]
    assert result.graph["content"].attr_tensor("value").array()[()] == b"\0model\n"
    assert not result.assets


def test_file_of_another_op_is_an_asset(tmp_path):
    (tmp_path / "words.txt").write_text("a\n")
    result = frozen(model(tmp_path, node("y", "MyTokenizer", "path")), "ids", "y")
    assert [a.name for a in result.assets] == ["words.txt"]
    assert result.graph["path"].attr_tensor("value").array()[()] == b"words.txt"
    assert result.graph["words/fill"].op == "InitializeTableV2"
    assert not result.warnings


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\na\n", "the key b'a' has two values"),
        ("", "has no lines"),
        ("a\n\n", "line 2 is empty"),
    ],
)
def test_invalid_file_of_a_table_is_reported(tmp_path, content, message):
    (tmp_path / "words.txt").write_text(content)
    with pytest.raises(InvalidGraphError, match=message) as caught:
        frozen(model(tmp_path), "ids")
    assert caught.value.where.endswith("words.txt")


def test_initializers_are_found_without_init_ops(tmp_path):
    nodes = [
        *model(tmp_path).graph,
        const("keys", np.array([b"a"], dtype=object)),
        const("values", np.array([7])),
        node("code", "HashTableV2", **KINDS),
        node("code/fill", "LookupTableImportV2", "code", "keys", "values", Tin=STRING, Tout=INT),
        node("y", "LookupTableFindV2", "code", "text", "minus", Tin=STRING, Tout=INT),
    ]
    result = frozen(source(nodes), "ids", "y")
    assert result.init_ops == ("words/fill", "code/fill")
    assert not result.assets
    (warning,) = result.warnings
    assert warning.startswith("the graph reads the file '/home/trainer/words.txt', which the app")
    assert "in 'assets' of the recipe's 'source'" in warning


@pytest.mark.parametrize("path", ["/home/trainer/words.txt", "words.txt", "C:\\data\\words.txt"])
def test_user_file_replaces_a_path_of_another_machine(tmp_path, path):
    (tmp_path / "words.txt").write_text("a\nb\n")
    (tmp_path / "more.txt").write_text("c\n")
    nodes = [
        const("path", np.array(path.encode(), dtype=object)) if n.name == "path" else n
        for n in model(tmp_path).graph
    ]
    files = (tmp_path / "more.txt", tmp_path / "words.txt")
    result = frozen(structs.replace(source(nodes), files=files), "ids")
    assert not result.warnings
    assert not result.assets
    assert look_up(result.graph, result.init_ops, b"b", b"c") == [1, -1]


def test_user_file_in_the_same_directory_is_preferred(tmp_path):
    for folder, words in (("other", "b\n"), ("trainer", "a\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "words.txt").write_text(words)
    files = [tmp_path / folder / "words.txt" for folder in ("other", "trainer")]
    loaded = structs.replace(source(model(tmp_path).graph), files=tuple(files))
    result = frozen(loaded, "ids")
    assert look_up(result.graph, result.init_ops, b"a", b"b") == [0, -1]
    (tmp_path / "trainer").rename(tmp_path / "third")
    loaded = structs.replace(loaded, files=(files[0], tmp_path / "third/words.txt"))
    with pytest.raises(InvalidGraphError, match=r"match the path '/home/trainer/words\.txt'"):
        frozen(loaded, "ids")


def mutable(op="MutableHashTableV2"):
    """Return a table whose contents are restored by a saver."""
    return [
        placeholder("text", -1, dtype=STRING),
        node("codes", op, **KINDS),
        const("minus", np.int64(-1)),
        node("y", "LookupTableFindV2", "codes", "text", "minus", Tin=STRING, Tout=INT),
        const("names", np.array([b"codes-keys", b"codes-values"], dtype=object)),
        const("slices", np.array([b"", b""], dtype=object)),
        const("file", np.array(b"model", dtype=object)),
        node("r", "RestoreV2", "file", "names", "slices", dtypes=[STRING, INT]),
        node("import", "LookupTableImportV2", "codes", "r", "r:1", Tin=STRING, Tout=INT),
        node("save/restore_all", "NoOp", "^import"),
    ]


CODES = {
    "codes-keys": np.array([b"a", b"b"], dtype=object),
    "codes-values": np.array([4, 9], np.int64),
}


def test_saved_contents_of_a_mutable_table_are_imported(tmp_path):
    result = frozen(source(mutable(), CODES, tmp_path), "y")
    assert result.init_ops == ("codes/contents/import",)
    inputs = ("codes", "codes/contents/keys", "codes/contents/values")
    assert listing(result.graph)[-3:] == [
        "codes/contents/keys = Const()",
        "codes/contents/values = Const()",
        f"codes/contents/import = LookupTableImportV2({', '.join(inputs)})",
    ]
    runner = Interpreter(result.graph)
    runner.run(["codes/contents/import"], {})
    texts = {"text": np.array([b"b", b"c"], dtype=object)}
    assert runner.run(["y"], texts)[0].tolist() == [9, -1]


def test_missing_contents_of_a_table_are_reported(tmp_path):
    tensors = {"codes-keys": CODES["codes-keys"]}
    message = r"lacks the contents of the table 'codes' \('codes-values'\)"
    with pytest.raises(InvalidGraphError, match=message):
        frozen(source(mutable(), tensors, tmp_path), "y")


def test_contents_of_a_dense_hash_table_are_refused(tmp_path):
    with pytest.raises(UnsupportedError, match=r"'codes' \(MutableDenseHashTableV2\)"):
        frozen(source(mutable("MutableDenseHashTableV2"), CODES, tmp_path), "y")


def test_outputs_without_tables_need_no_init_ops_or_files(tmp_path):
    more = node("other", "Identity", "minus", T=INT)
    result = frozen(model(tmp_path, more), "other")
    assert (result.init_ops, result.assets) == ((), ())


def test_missing_file_is_reported(tmp_path):
    with pytest.raises(CorruptFileError, match=r"words\.txt.*the asset 'words.txt' is missing"):
        frozen(model(tmp_path), "ids")


def initialized(*names):
    return [
        ref_variable("w", 2),
        ref_variable("v", 2),
        const("two", np.full(2, 2, np.float32)),
        node("sum", "Add", "w/read", "two", T=FLOAT),
        node("set_v", "Assign", "v", "sum", T=FLOAT),
        node("set_w", "Assign", "w", "two", T=FLOAT),
        node("init", "NoOp", *(f"^{n}" for n in names)),
        node("y", "Add", "w/read", "v/read", T=FLOAT),
    ]


CHECKPOINT = {"w": np.array([5, 6], np.float32)}


def test_initializer_nodes_set_variables_without_saved_values(tmp_path):
    result = frozen(
        source(initialized("set_v"), CHECKPOINT, tmp_path), "y", initializer_nodes=("init",)
    )
    assert result.graph["v"].attr_tensor("value").array().tolist() == [7, 8]
    assert dict(result.variables) == {"w": "w", "v": ""}


def test_initializer_nodes_override_the_checkpoint(tmp_path):
    model = source(initialized("set_v", "set_w"), CHECKPOINT, tmp_path)
    result = frozen(model, "y", initializer_nodes=("init",))
    assert result.graph["w"].attr_tensor("value").array().tolist() == [2, 2]


def test_checkpoint_overrides_the_init_ops_of_the_model(tmp_path):
    model = source(initialized("set_v", "set_w"), CHECKPOINT, tmp_path, init_ops=("init",))
    result = frozen(model, "y")
    values = [result.graph[n].attr_tensor("value").array().tolist() for n in ("w", "v")]
    assert values == [[5, 6], [7, 8]]


def test_initializer_nodes_set_all_variables_without_a_checkpoint():
    result = frozen(source(initialized("set_v", "set_w")), "y", initializer_nodes=("init",))
    assert result.graph["v"].op == "Const"


def test_missing_initializer_node_is_reported(tmp_path):
    with pytest.raises(InvalidGraphError, match="the initializer node 'inti' is not in the graph"):
        frozen(source(initialized(), CHECKPOINT, tmp_path), "y", initializer_nodes=("inti",))


def test_unsupported_op_in_an_initializer_is_reported(tmp_path):
    nodes = initialized("set_v")
    nodes[3] = node("sum", "MyOwnOp", "w/read")
    with pytest.raises(UnsupportedError, match="MyOwnOp"):
        frozen(source(nodes, CHECKPOINT, tmp_path), "y", initializer_nodes=("init",))


def test_circular_initializers_have_no_value():
    nodes = [
        ref_variable("a", 2),
        ref_variable("b", 2),
        node("set_a", "Assign", "a", "b/read", T=FLOAT),
        node("set_b", "Assign", "b", "a/read", T=FLOAT),
        node("init", "NoOp", "^set_a", "^set_b"),
    ]
    with pytest.raises(InvalidGraphError, match="1 variables have no value"):
        frozen(source(nodes), "a/read", initializer_nodes=("init",))
