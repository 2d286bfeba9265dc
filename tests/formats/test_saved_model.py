"""Reading SavedModels, MetaGraphs, and savers in binary and text form."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.formats.saved_model import (
    read_meta_graph,
    read_saved_model,
    read_saver,
    saved_model_file,
)


def meta(*tags: str, content: bytes = b"") -> pb.MetaGraphDef:
    meta_graph = pb.MetaGraphDef()
    meta_graph.meta_info_def.tags.extend(tags)
    node = meta_graph.graph_def.node.add(name="-".join(tags) or "none", op="Const")
    node.attr["value"].tensor.tensor_content = content
    meta_graph.saver_def.restore_op_name = "save/restore_all"
    return meta_graph


def saved(folder, *graphs, text=False):
    model = pb.SavedModel(saved_model_schema_version=1, meta_graphs=graphs)
    if text:
        (folder / "saved_model.pbtxt").write_text(text_format.MessageToString(model))
    else:
        (folder / "saved_model.pb").write_bytes(model.SerializeToString())
    return folder


def name_of(meta_graph):
    return meta_graph.proto.graph_def.node[0].name


@pytest.mark.parametrize("text", [False, True])
def test_meta_graph_is_selected_by_tags(tmp_path, text):
    folder = saved(tmp_path, meta("train"), meta("serve"), meta("serve", "gpu"), text=text)
    assert name_of(read_saved_model(folder)) == "serve"
    assert name_of(read_saved_model(folder, ["gpu", "serve"])) == "serve-gpu"
    assert name_of(read_saved_model(saved_model_file(folder), ["train"])) == "train"
    with pytest.raises(UsageError, match="no MetaGraph has the tags 'serv'") as caught:
        read_saved_model(folder, ["serv"])
    assert caught.value.hint == "there is 'gpu,serve' or 'serve' or 'train'"


def test_only_meta_graph_is_used_without_tags(tmp_path):
    assert name_of(read_saved_model(saved(tmp_path, meta("mine")))) == "mine"
    with pytest.raises(UsageError, match="no MetaGraph has the tags 'serve'"):
        read_saved_model(saved(tmp_path, meta("mine"), meta("yours")))


def test_large_constants_are_views_of_the_file(tmp_path):
    folder = saved(tmp_path, meta("serve", content=b"x" * 5000))
    meta_graph = read_saved_model(folder)
    assert [len(p.view) for p in meta_graph.payloads] == [5000]
    assert not meta_graph.proto.graph_def.node[0].attr["value"].tensor.tensor_content


def test_meta_graph_is_read_in_both_forms(tmp_path):
    binary, text = tmp_path / "a.meta", tmp_path / "b.meta"
    binary.write_bytes(meta("a").SerializeToString())
    text.write_text(text_format.MessageToString(meta("b")))
    assert [name_of(read_meta_graph(p)) for p in (binary, text)] == ["a", "b"]


def test_saver_is_read_in_both_forms(tmp_path):
    saver = pb.SaverDef(restore_op_name="save/restore_all", filename_tensor_name="save/Const:0")
    binary, text = tmp_path / "saver.pb", tmp_path / "saver.pbtxt"
    binary.write_bytes(saver.SerializeToString())
    text.write_text(text_format.MessageToString(saver))
    assert read_saver(binary) == read_saver(text) == saver


def test_assets_in_the_text_form_of_any_are_read(tmp_path):
    (tmp_path / "m.meta").write_text(
        """meta_info_def { tags: "serve" }
        collection_def { key: "saved_model_assets" value { any_list {
          value { [type.googleapis.com/tensorflow.AssetFileDef] {
            tensor_info { name: "Const:0" } filename: "words.txt" } }
          value { [type.googleapis.com/tensorflow.Unknown] { some: 1 } }
          value: { [type.googleapis.com/tensorflow.AssetFileDef]: < filename: "b" > }
          value { type_url: "plain" value: "bytes" } } } }"""
    )
    proto = read_meta_graph(tmp_path / "m.meta").proto
    values = proto.collection_def["saved_model_assets"].any_list.value
    assert values[0].type_url == "type.googleapis.com/tensorflow.AssetFileDef"
    asset = pb.AssetFileDef.FromString(values[0].value)
    assert (asset.filename, asset.tensor_info.name) == ("words.txt", "Const:0")
    assert values[1] == pb.AnyProto()
    assert pb.AssetFileDef.FromString(values[2].value).filename == "b"
    assert (values[3].type_url, values[3].value) == ("plain", b"bytes")


def test_invalid_saved_model_is_refused(tmp_path):
    with pytest.raises(CorruptFileError, match=r"has no saved_model\.pb or saved_model\.pbtxt"):
        read_saved_model(tmp_path)
    with pytest.raises(CorruptFileError, match="holds no MetaGraph"):
        read_saved_model(saved(tmp_path))
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(CorruptFileError, match="is empty"):
        read_saved_model(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(meta("a").SerializeToString())
    with pytest.raises(CorruptFileError, match="is a MetaGraphDef, not a SavedModel"):
        read_saved_model(tmp_path)
    with pytest.raises(CorruptFileError, match="cannot be read"):
        read_meta_graph(tmp_path / "gone.meta")


def test_truncated_files_are_refused(tmp_path):
    whole = meta("serve", content=bytes(range(256)) * 8).SerializeToString()
    path = tmp_path / "m.meta"
    refused = 0
    for length in range(1, len(whole), 7):
        path.write_bytes(whole[:length])
        try:
            read_meta_graph(path)
        except CorruptFileError:
            refused += 1
    # A file that is truncated between two fields is a valid message.
    assert refused > 0.95 * len(range(1, len(whole), 7))
