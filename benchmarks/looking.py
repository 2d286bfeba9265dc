"""Measure ``summarize`` and ``dot`` on a graph of 7,000 nodes.

    python benchmarks/looking.py [--nodes 7000]

Limits: 1 s for ``summarize``, and 5 s for ``dot`` with and without collapsed scopes, both without
the start-up time of the interpreter.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import measure, mobileprep

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Tensor

# Nodes of one layer: weights, product, activation.
_LAYER = 3
_FLOAT = attr.dtype(DType.FLOAT)


def chain(nodes: int) -> Graph:
    """Create a chain of layers with eight layers per scope."""
    weights = Tensor.packed(np.eye(8, dtype=np.float32))
    shape = attr.shape((-1, 8))
    made = [Node("image", "Placeholder", (), attrs={"dtype": _FLOAT, "shape": shape})]
    last = "image"
    for number in range(nodes // _LAYER):
        scope = f"block{number // 8}/layer{number}"
        made += [
            constant(f"{scope}/weights", weights),
            _node(f"{scope}/MatMul", "MatMul", last, f"{scope}/weights"),
            _node(f"{scope}/Relu", "Relu", f"{scope}/MatMul"),
        ]
        last = f"{scope}/Relu"
    return Graph(tuple(made))


def _node(name: str, op: str, *inputs: str) -> Node:
    return Node(name, op, tuple(map(parse_ref, inputs)), attrs={"T": _FLOAT})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=7000)
    nodes = parser.parse_args().nodes
    bare = measure([sys.executable, "-c", "pass"])
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "chain.pb"), Path(folder, "chain.dot")
        write_graph(path, chain(nodes))
        drawn = ["dot", f"--graph={path}", f"--dot_output={out}"]
        for arguments, bound in (
            (["summarize", f"--in_graph={path}"], 1),
            (drawn, 5),
            ([*drawn, "--collapse=1", "--shapes", "--colors"], 5),
        ):
            taken = measure([mobileprep(), *arguments], runs=3)
            flags = " ".join(a for a in arguments[1:] if folder not in a)
            print(
                f"{arguments[0]} {flags}: {taken.median:.2f} s, "
                f"{taken.median - bare.median:.2f} s over bare (bound {bound})"
            )


if __name__ == "__main__":
    main()
