"""Tracing tensors in linear time."""

from __future__ import annotations

from mobileprep.freezing.guess import guess
from mobileprep.freezing.trace import Flows
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Ref
from tests.freezing.graphs import FLOAT, node, placeholder, source
from tests.work import lines_run


def test_control_dependencies_carry_no_tensor():
    graph = Graph(
        [
            placeholder("x", 2),
            node("two", "Split", "x", "x", T=FLOAT, num_split=2),
            node("a", "Relu", "two", T=FLOAT),
            node("b", "Relu", "two:1", T=FLOAT),
            node("c", "Relu", "x", "^a", T=FLOAT),
        ]
    )
    flows = Flows(graph)
    assert flows.downstream([Ref("two", 1)]) == {"b"}
    assert flows.downstream([Ref("x")]) == {"two", "a", "b", "c"}
    assert flows.downstream([Ref("x")], past={"two"}) == {"c"}
    assert flows.leading_to(["b"]) == {"b", "two", "x"}
    assert flows.takes(Ref("two"), {"a"})
    assert not flows.takes(Ref("two", 1), {"a"})
    assert flows.is_used("a")
    assert not flows.takers("a")


def test_tracing_takes_linear_time_in_edges():
    def work(count):
        # Each node of the chain waits for many others.
        clocks = [node(f"c{i}", "NoOp") for i in range(100)]
        controls = [f"^c{i}" for i in range(100)]
        chain = [node("n0", "Relu", "x", *controls, T=FLOAT)]
        chain += [node(f"n{i}", "Relu", f"n{i - 1}", *controls, T=FLOAT) for i in range(1, count)]
        model = source([placeholder("x", 2), *clocks, *chain])
        assert [t.name for t in guess(model).outputs] == [f"n{count - 1}"]
        return lines_run(lambda: guess(model))

    assert work(80) < 2.5 * work(40)
