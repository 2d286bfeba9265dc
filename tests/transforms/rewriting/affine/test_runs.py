"""Products and sums by channels that follow no layer become one product and one sum."""

from __future__ import annotations

import pytest

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.transforms.graphs import apply, const, node, placeholder

Link = tuple[str, list[float]]


def shortened(*links: Link) -> tuple[list[str], dict[str, list[float]]]:
    """The ops behind the input, and the values of the constants that they take."""
    nodes: list[Node] = [placeholder()]
    for i, (op, values) in enumerate(links):
        source = f"n{i - 1}" if i else "x"
        nodes += [const(f"c{i}", values), node(f"n{i}", op, f"{source} c{i}")]
    graph = Graph([*nodes, node("out", "Relu", nodes[-1].name)])
    result = apply("fuse_batch_norms", graph).graph
    ops = [n.op for n in result if n.op not in ("Placeholder", "Const")]
    numbers = [r.node for n in result for r in n.inputs if result[r.node].op == "Const"]
    found = {name: result[name].attr_tensor("value").array().ravel().tolist() for name in numbers}
    return ops, found


@pytest.mark.parametrize(
    ("links", "ops", "numbers"),
    [
        # 2 x then 3 x is 6 x
        ([("Mul", [2.0, 4.0]), ("Mul", [3.0, 5.0])], ["Mul"], [[6, 20]]),
        ([("Add", [2.0, 4.0]), ("Sub", [3.0, 1.0])], ["Add"], [[-1, 3]]),
        # (2 x + 1) 3 is 6 x + 3
        (
            [("Mul", [2.0, 4.0]), ("Add", [1.0, 1.0]), ("Mul", [3.0, 5.0])],
            ["Mul", "Add"],
            [[6, 20], [3, 5]],
        ),
        # (x + 1) 2 + 3 is 2 x + 5
        (
            [("Add", [1.0, 2.0]), ("Mul", [2.0, 2.0]), ("Add", [3.0, 3.0])],
            ["Mul", "Add"],
            [[2, 2], [5, 7]],
        ),
    ],
)
def test_long_affine_chain_is_shortened(
    links: list[Link], ops: list[str], numbers: list[list[float]]
) -> None:
    found, values = shortened(*links)
    assert found == [*ops, "Relu"]
    assert list(values.values()) == numbers


@pytest.mark.parametrize(
    "links",
    [
        [("Mul", [2.0, 4.0])],
        [("Mul", [2.0, 4.0]), ("Add", [1.0, 1.0])],
        [("Add", [1.0, 1.0]), ("Mul", [2.0, 4.0])],
    ],
)
def test_a_product_and_a_sum_stay(links: list[Link]) -> None:
    found, values = shortened(*links)
    assert found == [*(op for op, _ in links), "Relu"]
    assert list(values.values()) == [numbers for _, numbers in links]
