"""Comparison of a model with the inputs and outputs in the recipe."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.freezing.fit import DeclaredInput, fit
from mobileprep.freezing.model import FreezeOptions, LoadedSource
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.tensor import Tensor
from tests.building.stages.jobs import classifier, op, placeholder


def misfits(
    *inputs: DeclaredInput,
    outputs: tuple[str, ...] = ("y",),
    graph: Graph | None = None,
    signature: str = "",
) -> list[tuple[tuple[str | int, ...], str, str]]:
    source = LoadedSource(graph or classifier(), "model.pb")
    result = fit(source, FreezeOptions(outputs, signature), inputs)
    return [(m.keys, m.message, m.hint) for m in result.misfits]


def test_matching_inputs_are_accepted() -> None:
    assert misfits(DeclaredInput("x", "float32", (-1, 3))) == []
    assert misfits(DeclaredInput("x:0", None, (7, -1))) == []


def test_wrong_names_are_reported_with_suggestions() -> None:
    result = misfits(DeclaredInput("z"), DeclaredInput("prodct"), outputs=("y", "yy", "y:3"))
    assert [keys for keys, _, _ in result] == [
        ("inputs", "z"),
        ("inputs", "prodct"),
        ("outputs", 1),
        ("outputs", 2),
    ]
    assert "likely inputs: x (float32 [-1, 3])" in result[0][2]
    assert "did you mean 'product'?" in result[1][2]
    assert "'yy' is not in the graph" in result[2][1]
    assert "gives 1" in result[3][1]


def test_types_and_shapes_are_reported_with_wrong_outputs() -> None:
    declared = DeclaredInput("x", "uint8", (-1, 4))
    for outputs in (("y",), ("no",)):
        result = misfits(declared, outputs=outputs)
        assert result[0][:2] == (
            ("inputs", "x", "dtype"),
            "the input 'x' is float32 in the model, not uint8",
        )
        assert result[0][2] == "write dtype: float32"
        assert result[1][0] == ("inputs", "x", "shape")
        assert "[-1, 3] in the model, which [-1, 4] does not fit" in result[1][1]


def test_input_that_is_not_a_placeholder_is_checked() -> None:
    result = misfits(DeclaredInput("product", "int32", (1, 2)))
    assert [keys for keys, _, _ in result] == [
        ("inputs", "product", "dtype"),
        ("inputs", "product", "shape"),
    ]


def test_unused_input_is_reported() -> None:
    graph = classifier()
    graph = graph.with_nodes([*graph.nodes, placeholder((1,), name="other")])
    ((keys, message, hint),) = misfits(DeclaredInput("x"), DeclaredInput("other"), graph=graph)
    assert keys == ("inputs", "other")
    assert message == "no output needs the input 'other'"
    assert "likely inputs: x" in hint


def test_unknown_signature_is_reported() -> None:
    ((keys, message, _),) = misfits(signature="serve")
    assert keys == ("source", "signature")
    assert "unknown signature 'serve'" in message


def test_missing_outputs_are_reported() -> None:
    ((keys, message, hint),) = misfits(outputs=())
    assert (keys, message) == (("outputs",), "no outputs are named")
    assert "likely outputs: y" in hint


def test_missing_output_of_an_input_node_is_reported() -> None:
    ((keys, message, _),) = misfits(DeclaredInput("x:2"))
    assert keys == ("inputs", "x:2")
    assert "has no output 2" in message


def test_variable_without_a_value_is_an_error() -> None:
    attrs = {"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape((3, 3))}
    nodes = [Node("w", "VariableV2", attrs=attrs) if n.name == "w" else n for n in classifier()]
    with pytest.raises(InvalidGraphError, match="w"):
        misfits(graph=Graph(nodes))


def test_invalid_graph_is_an_error() -> None:
    with pytest.raises(InvalidGraphError, match="nowhere"):
        misfits(graph=Graph([op("y", "Relu", "nowhere")]))
    twice = constant("y", Tensor.of(np.float32(1)))
    with pytest.raises(InvalidGraphError, match="y"):
        misfits(graph=Graph([twice, twice]))
