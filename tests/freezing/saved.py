"""A sum with one variable as a MetaGraph and as a SavedModel."""

from __future__ import annotations

import numpy as np

from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.graph.serde import graph_to_bytes
from tests.formats.checkpoint_writer import write_bundle
from tests.freezing.graphs import FLOAT, node, placeholder, ref_variable, source

W = np.arange(3, dtype=np.float32)
MODEL = source(
    [placeholder("x", 3), ref_variable("w", 3), node("y", "Add", "x", "w/read", T=FLOAT)]
)


def meta() -> pb.MetaGraphDef:
    meta_graph = pb.MetaGraphDef()
    meta_graph.meta_info_def.tags.append("serve")
    meta_graph.graph_def.ParseFromString(graph_to_bytes(MODEL.graph))
    meta_graph.saver_def.restore_op_name = "save/restore_all"
    signature = meta_graph.signature_def["serving_default"]
    for entries, key, name in ((signature.inputs, "in", "x:0"), (signature.outputs, "out", "y:0")):
        entries[key].name = name
        entries[key].dtype = 1
        entries[key].tensor_shape.dim.add().size = 3
    signature.outputs["nothing"].composite_tensor.type_spec = b"of no tensors"
    return meta_graph


def write_meta(folder, meta_graph=None):
    path = folder / "model.meta"
    path.write_bytes((meta_graph or meta()).SerializeToString())
    return path


def write_saved_model(folder, meta_graph=None):
    model = pb.SavedModel(saved_model_schema_version=1, meta_graphs=[meta_graph or meta()])
    (folder / "variables").mkdir()
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())
    write_bundle(folder / "variables" / "variables", {"w": W})
    return folder
