"""Whether a model has what a recipe says of it."""

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
    found = fit(source, FreezeOptions(outputs, signature), inputs)
    return [(m.keys, m.message, m.hint) for m in found.misfits]


def test_what_the_recipe_says_may_be_so() -> None:
    assert misfits(DeclaredInput("x", "float32", (-1, 3))) == []
    assert misfits(DeclaredInput("x:0", None, (7, -1))) == []


def test_every_wrong_name_is_told_with_the_nearest() -> None:
    found = misfits(DeclaredInput("z"), DeclaredInput("prodct"), outputs=("y", "yy", "y:3"))
    assert [keys for keys, _, _ in found] == [
        ("inputs", "z"),
        ("inputs", "prodct"),
        ("outputs", 1),
        ("outputs", 2),
    ]
    assert "likely inputs: x (float32 [-1, 3])" in found[0][2]
    assert "did you mean 'product'?" in found[1][2]
    assert "'yy' is not in the graph" in found[2][1]
    assert "gives 1" in found[3][1]


def test_types_and_shapes_are_told_though_outputs_are_wrong() -> None:
    declared = DeclaredInput("x", "uint8", (-1, 4))
    for outputs in (("y",), ("no",)):
        found = misfits(declared, outputs=outputs)
        assert found[0][:2] == (
            ("inputs", "x", "dtype"),
            "the input 'x' is float32 in the model, not uint8",
        )
        assert found[0][2] == "write dtype: float32"
        assert found[1][0] == ("inputs", "x", "shape")
        assert "[-1, 3] in the model, which [-1, 4] does not fit" in found[1][1]


def test_an_input_that_is_no_placeholder_is_looked_at_too() -> None:
    found = misfits(DeclaredInput("product", "int32", (1, 2)))
    assert [keys for keys, _, _ in found] == [
        ("inputs", "product", "dtype"),
        ("inputs", "product", "shape"),
    ]


def test_an_input_that_no_output_needs_is_told() -> None:
    graph = classifier()
    graph = graph.with_nodes([*graph.nodes, placeholder((1,), name="other")])
    ((keys, message, hint),) = misfits(DeclaredInput("x"), DeclaredInput("other"), graph=graph)
    assert keys == ("inputs", "other")
    assert message == "no output needs the input 'other'"
    assert "likely inputs: x" in hint


def test_a_signature_that_is_not_there_is_told() -> None:
    ((keys, message, _),) = misfits(signature="serve")
    assert keys == ("source", "signature")
    assert "unknown signature 'serve'" in message


def test_a_source_without_outputs_is_told() -> None:
    ((keys, message, hint),) = misfits(outputs=())
    assert (keys, message) == (("outputs",), "no outputs are named")
    assert "likely outputs: y" in hint


def test_an_output_of_an_input_that_is_not_there_is_told() -> None:
    ((keys, message, _),) = misfits(DeclaredInput("x:2"))
    assert keys == ("inputs", "x:2")
    assert "has no output 2" in message


def test_a_variable_without_a_value_is_an_error() -> None:
    attrs = {"dtype": attr.dtype(DType.FLOAT), "shape": attr.shape((3, 3))}
    nodes = [Node("w", "VariableV2", attrs=attrs) if n.name == "w" else n for n in classifier()]
    with pytest.raises(InvalidGraphError, match="w"):
        misfits(graph=Graph(nodes))


def test_a_broken_graph_is_an_error() -> None:
    with pytest.raises(InvalidGraphError, match="nowhere"):
        misfits(graph=Graph([op("y", "Relu", "nowhere")]))
    twice = constant("y", Tensor.of(np.float32(1)))
    with pytest.raises(InvalidGraphError, match="y"):
        misfits(graph=Graph([twice, twice]))
