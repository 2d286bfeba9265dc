"""Graphs and constants for the tests of graphs."""

from __future__ import annotations

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref

EVERY_ATTR = """
node {
  name: "a" op: "Custom" input: "b:1" input: "^c" device: "/cpu:0"
  attr { key: "s" value { s: "text\\377" } }
  attr { key: "i" value { i: -5 } }
  attr { key: "f" value { f: 0.1 } }
  attr { key: "b" value { b: true } }
  attr { key: "false" value { b: false } }
  attr { key: "type" value { type: DT_FLOAT_REF } }
  attr { key: "shape" value { shape { dim { size: -1 } dim { size: 3 } } } }
  attr { key: "scalar" value { shape { } } }
  attr { key: "unknown" value { shape { unknown_rank: true } } }
  attr { key: "placeholder" value { placeholder: "T" } }
  attr { key: "func" value { func { name: "f" attr { key: "T" value { type: DT_INT32 } } } } }
  attr { key: "empty" value { list { } } }
  attr { key: "ls" value { list { s: "x" s: "y" } } }
  attr { key: "li" value { list { i: 1 i: 2 } } }
  attr { key: "lf" value { list { f: 1.5 } } }
  attr { key: "lb" value { list { b: true b: false } } }
  attr { key: "lt" value { list { type: DT_HALF type: DT_STRING } } }
  attr { key: "lsh" value { list { shape { dim { size: 2 } } shape { unknown_rank: true } } } }
  attr { key: "lte" value { list { tensor { dtype: DT_INT32 tensor_shape { } int_val: 7 } } } }
  attr { key: "lfn" value { list { func { name: "g" } func { name: "h" } } } }
  attr { key: "nothing" value { } }
}
node { name: "b" op: "f" }
node { name: "c" op: "NoOp" }
library {
  function {
    signature {
      name: "f"
      input_arg { name: "x" type_attr: "T" }
      output_arg { name: "y" type: DT_FLOAT is_ref: true }
      attr { name: "T" type: "type" default_value { type: DT_FLOAT }
             allowed_values { list { type: DT_FLOAT } } }
      attr { name: "N" type: "int" has_minimum: true minimum: 2 }
      is_stateful: true
      control_output: "done"
    }
    node_def { name: "n" op: "Relu" input: "x" input: "m:output:0" input: "^k"
               attr { key: "T" value { type: DT_FLOAT } } }
    ret { key: "y" value: "n:activations:0" }
    control_ret { key: "done" value: "n" }
    attr { key: "api_implements" value { s: "z" } }
    arg_attr { key: 0 value { attr { key: "_user" value { s: "u" } } } }
    resource_arg_unique_id { key: 0 value: 3 }
  }
  gradient { function_name: "f" gradient_func: "g" }
}
versions { producer: 1087 min_consumer: 12 bad_consumers: 3 }
"""

NUMBERS = [d for d in DType if d.numpy is not None]


def small_graph(**nodes: str) -> Graph:
    """Return a graph of the named nodes, such as ``a="Add x:1 ^b"``."""
    split = {name: text.split() for name, text in nodes.items()}
    return Graph([Node(n, op, tuple(map(parse_ref, refs))) for n, (op, *refs) in split.items()])


def const_proto(dtype: DType, *, as_content: bool, count: int = 3) -> pb.GraphDef:
    """Return a graph with one constant, whose elements are 0, 1, 0, and so on."""
    assert dtype.numpy is not None
    array = (np.arange(count) % 2).astype(dtype.numpy)
    graph = pb.GraphDef()
    node = graph.node.add(name="c", op="Const")
    node.attr["dtype"].type = dtype.value
    tensor = node.attr["value"].tensor
    tensor.dtype = dtype.value
    tensor.tensor_shape.dim.add(size=count)
    if as_content:
        tensor.tensor_content = array.tobytes()
    return graph
