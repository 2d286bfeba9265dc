"""obfuscate_names: numbers in base 62, but for inputs and outputs."""

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, const, node, normal, placeholder, run, shown

BOTH = pytest.mark.parametrize("tf115", [True, False])


def _graph():
    return Graph(
        [
            placeholder(),
            const("secret/weights", 2.0),
            node("secret/product", "Mul", "x secret/weights:0"),
            node("out", "Relu", "secret/product ^secret/weights"),
        ]
    )


@BOTH
def test_golden(tf115):
    result = apply("obfuscate_names", _graph(), tf115=tf115)
    assert result.matched == 2
    assert shown(result.graph) == (
        "x = Placeholder()\n"
        "0 = Const() value=float32[]:2\n"
        "1 = Mul(x, 0:0) T=float32\n"
        "out = Relu(1, ^0) T=float32"
    )


def test_it_computes_the_same():
    x = normal(2, 3)
    after = apply("obfuscate_names", _graph()).graph
    np.testing.assert_array_equal(run(after, x), run(_graph(), x))


@BOTH
def test_names_of_inputs_and_outputs_are_not_reused(tf115):
    graph = Graph([placeholder("a"), placeholder("0"), placeholder("b"), placeholder("2")])
    result = apply("obfuscate_names", graph, inputs=("0",), outputs=("2",), tf115=tf115)
    assert [n.name for n in result.graph] == ["1", "0", "3", "2"]


def test_names_grow_after_62_and_after_3844():
    graph = Graph([placeholder(f"n{i}") for i in range(3845)])
    names = [n.name for n in apply("obfuscate_names", graph, inputs=(), outputs=()).graph]
    picked = [names[i] for i in (0, 9, 10, 35, 36, 61, 62, 63, 3843, 3844)]
    assert picked == ["0", "9", "a", "z", "A", "Z", "10", "11", "ZZ", "100"]
    assert len(set(names)) == len(names)


@BOTH
def test_an_output_that_is_named_with_its_index_keeps_its_name(tf115):
    """The original renames it, and nobody can fetch it any more."""
    result = apply("obfuscate_names", _graph(), outputs=("out:0",), tf115=tf115)
    assert "out" in result.graph


@BOTH
def test_colocation_follows_the_new_names(tf115):
    """The original leaves the old ones, which say the secret and keep the graph from loading."""
    where = AttrValue("list(string)", (b"loc:@secret", b"loc:@gone", b"other"))
    graph = Graph([placeholder("secret"), node("out", "Relu", "secret", _class=where)])
    after = apply("obfuscate_names", graph, inputs=(), tf115=tf115).graph
    assert after["out"].attrs["_class"].value == (b"loc:@0", b"other")


def test_a_missing_input_is_an_error():
    with pytest.raises(InvalidGraphError, match="which does not exist"):
        apply("obfuscate_names", Graph([node("a", "Relu", "gone")]))
