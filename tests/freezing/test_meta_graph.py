"""Signatures of MetaGraphDefs."""

from __future__ import annotations

from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import saved_model_pb2 as pb
from mobileprep.freezing.model import TensorSpec
from mobileprep.freezing.source import signatures_of
from tests.freezing.saved import meta


def _sparse(info: pb.TensorInfo) -> None:
    info.dtype = 1
    for size in (-1, 4):
        info.tensor_shape.dim.add().size = size
    info.coo_sparse.indices_tensor_name = "sp/indices:0"
    info.coo_sparse.values_tensor_name = "sp/values:0"
    info.coo_sparse.dense_shape_tensor_name = "sp/shape:0"


def test_parts_of_a_sparse_argument_have_names() -> None:
    meta_graph = meta()
    _sparse(meta_graph.signature_def["serving_default"].inputs["sp"])
    assert signatures_of(meta_graph)["serving_default"].inputs == {
        "in": TensorSpec("x:0", DType.FLOAT, (3,)),
        "sp/indices": TensorSpec("sp/indices:0", DType.INT64, (-1, 2)),
        "sp/values": TensorSpec("sp/values:0", DType.FLOAT, (-1,)),
        "sp/dense_shape": TensorSpec("sp/shape:0", DType.INT64, (2,)),
    }


def test_sparse_argument_of_unknown_rank() -> None:
    meta_graph = meta()
    info = meta_graph.signature_def["serving_default"].outputs["sp"]
    _sparse(info)
    info.tensor_shape.Clear()
    info.tensor_shape.unknown_rank = True
    outputs = signatures_of(meta_graph)["serving_default"].outputs
    assert (outputs["sp/indices"].shape, outputs["sp/dense_shape"].shape) == ((-1, -1), (-1,))


def test_tensors_of_a_composite_argument_are_numbered() -> None:
    meta_graph = meta()
    parts = meta_graph.signature_def["serving_default"].outputs["ragged"].composite_tensor
    for name, kind in (("values:0", 1), ("splits:0", 9)):
        parts.components.add(name=name, dtype=kind)
    outputs = signatures_of(meta_graph)["serving_default"].outputs
    assert {key: (spec.name, spec.dtype) for key, spec in outputs.items()} == {
        "out": ("y:0", DType.FLOAT),
        "ragged/0": ("values:0", DType.FLOAT),
        "ragged/1": ("splits:0", DType.INT64),
    }
