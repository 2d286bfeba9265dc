"""Convert graph models of TensorFlow.js to frozen graphs.

    python benchmarks/tfjs_graph.py MODEL.json ... FOLDER

Writes FOLDER/MODEL.pb. Ops that only TensorFlow.js has are replaced: a fused layer by the layer,
its bias, and its activation, and Prelu by ``Relu(x) - alpha * Relu(-x)``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import json_format
from numpy.typing import NDArray

from mobileprep.formats.protos import graph_pb2 as pb

Array = NDArray[Any]
_FUSED = {
    "_FusedConv2D": "Conv2D",
    "FusedDepthwiseConv2dNative": "DepthwiseConv2dNative",
    "_FusedMatMul": "MatMul",
}
_FUSED_ATTRS = {
    *("TArgs", "epsilon", "fused_ops", "host_args", "leakyrelu_alpha", "num_args"),
    *("num_host_args", "user_ops"),
}


def main(words: list[str]) -> int:
    if len(words) < 2:
        print(__doc__)
        return 2
    *models, folder = map(Path, words)
    folder.mkdir(parents=True, exist_ok=True)
    for model in models:
        description = json.loads(model.read_text(encoding="utf-8"))
        target = folder / f"{model.stem}.pb"
        if "node" not in description.get("modelTopology", {}):
            print(f"{model}: skipped, because it is not a graph model")
            continue
        target.write_bytes(frozen_graph(description, model.parent).SerializeToString())
        print(target)
    return 0


def frozen_graph(description: Mapping[str, Any], folder: Path) -> pb.GraphDef:
    """Return the graph of a model with its weights, which are in the same directory."""
    arrays = weights(description["weightsManifest"], folder)
    nodes = {"node": description["modelTopology"]["node"]}
    source = json_format.ParseDict(nodes, pb.GraphDef(), ignore_unknown_fields=True)
    graph = pb.GraphDef()
    for node in source.node:
        for key in [key for key in node.attr if key.startswith("_")]:
            del node.attr[key]
        if node.op == "Const" and node.name in arrays:
            tensor = node.attr["value"].tensor
            dtype, array = tensor.dtype, arrays[node.name]
            tensor.CopyFrom(pb.TensorProto(dtype=dtype, tensor_content=array.tobytes()))
            for size in array.shape:
                tensor.tensor_shape.dim.add(size=size)
        graph.node.extend(plain_nodes(node))
    return graph


def weights(manifest: list[Mapping[str, Any]], folder: Path) -> dict[str, Array]:
    """Read all weights; those stored as float16 or as scaled integers become float32."""
    arrays: dict[str, Array] = {}
    for group in manifest:
        data = b"".join((folder / path).read_bytes() for path in group["paths"])
        offset = 0
        for weight in group["weights"]:
            stored = weight.get("quantization", {})
            dtype = np.dtype(stored.get("dtype", weight["dtype"]))
            count = math.prod(weight["shape"])
            values = np.frombuffer(data, dtype, count, offset)
            offset += values.nbytes
            if "scale" in stored:
                values = values.astype(np.float32) * stored["scale"] + stored["min"]
            arrays[weight["name"]] = values.astype(weight["dtype"]).reshape(weight["shape"])
    return arrays


def plain_nodes(node: pb.NodeDef) -> Iterator[pb.NodeDef]:
    """Yield the nodes that replace a node; the last one has its name."""
    if node.op == "Prelu":
        yield from prelu(node.name, node.input[0], node.input[1], node.attr["T"].type)
        return
    if node.op not in _FUSED:
        yield node
        return
    layer = pb.NodeDef(name=f"{node.name}/layer", op=_FUSED[node.op], input=node.input[:2])
    for key, value in node.attr.items():
        if key not in _FUSED_ATTRS:
            layer.attr[key].CopyFrom(value)
    yield layer
    dtype, extra, last = node.attr["T"].type, list(node.input[2:]), layer.name
    fused = [op.decode() for op in node.attr["fused_ops"].list.s]
    for op in fused:
        name = node.name if op == fused[-1] else f"{node.name}/{op}"
        if op == "Prelu":
            yield from prelu(name, last, extra.pop(0), dtype)
        else:
            inputs = [last, extra.pop(0)] if op == "BiasAdd" else [last]
            plain = simple(name, op, inputs, dtype)
            if op == "LeakyRelu":
                plain.attr["alpha"].f = node.attr["leakyrelu_alpha"].f
            yield plain
        last = name


def prelu(name: str, features: str, alpha: str, dtype: int) -> Iterator[pb.NodeDef]:
    """Yield the nodes of ``Relu(x) - alpha * Relu(-x)``."""
    yield simple(f"{name}/positive", "Relu", [features], dtype)
    yield simple(f"{name}/negated", "Neg", [features], dtype)
    yield simple(f"{name}/negative", "Relu", [f"{name}/negated"], dtype)
    yield simple(f"{name}/scaled", "Mul", [alpha, f"{name}/negative"], dtype)
    yield simple(name, "Sub", [f"{name}/positive", f"{name}/scaled"], dtype)


def simple(name: str, op: str, inputs: list[str], dtype: int) -> pb.NodeDef:
    """Return a node whose only attribute is the type of its inputs."""
    node = pb.NodeDef(name=name, op=op, input=inputs)
    node.attr["T"].type = dtype
    return node


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
