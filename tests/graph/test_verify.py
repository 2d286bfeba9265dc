"""Checks that every graph must pass."""

from __future__ import annotations

import random
import time

import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.verify import (
    check_graph,
    check_inputs,
    check_names,
    check_tensors,
    execution_order,
)
from tests.work import lines_run


def graph(text: str) -> Graph:
    """Return a graph of lines such as ``c: Add a b:1 ^d``."""
    nodes = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(": ")
        op, *inputs = rest.split()
        nodes.append(Node(name, op, tuple(parse_ref(t) for t in inputs)))
    return Graph(nodes)


def order(text: str) -> str:
    return " ".join(n.name for n in execution_order(graph(text), "g"))


LOOP = """
    start: Const
    enter: Enter start
    merge: {merge} enter next
    less: Less merge
    cond: LoopCond less
    switch: Switch merge cond
    body: Identity switch:1 ^cond
    next: {next} body
    exit: Exit switch
    """


@pytest.mark.parametrize("next_op", ["NextIteration", "RefNextIteration"])
@pytest.mark.parametrize("merge", ["Merge", "RefMerge"])
def test_while_loops_are_not_cycles(next_op: str, merge: str) -> None:
    text = LOOP.format(merge=merge, next=next_op)
    check_graph(graph(text), "g")
    assert order(text) == "start enter merge less cond switch body next exit"


@pytest.mark.parametrize(("next_op", "merge"), [("Identity", "Merge"), ("NextIteration", "AddN")])
def test_only_loop_edges_may_go_back(next_op: str, merge: str) -> None:
    with pytest.raises(InvalidGraphError, match="in a circle"):
        check_graph(graph(LOOP.format(merge=merge, next=next_op)), "g")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a: Op a", "a <- a"),
        ("a: Op ^a", "a <- a"),
        ("a: Op b\nb: Op a", "a <- b <- a"),
        ("z: Op a\na: Op b\nb: Op c\nc: Op a", "a <- b <- c <- a"),
        ("x: Const\na: Op x ^b\nb: Op a", "a <- b <- a"),
    ],
)
def test_cycle_is_reported(text: str, path: str) -> None:
    with pytest.raises(InvalidGraphError, match=f"in a circle: {path}$") as caught:
        check_graph(graph(text), "g.pb")
    assert caught.value.where == "g.pb"


def test_cycle_outside_of_a_loop_is_reported() -> None:
    text = LOOP.format(merge="Merge", next="NextIteration")
    text = text.replace("start: Const", "").replace("enter next", "next enter")
    text = text.replace("enter: Enter start", "") + "enter: Enter x\nx: Op y\ny: Op x"
    with pytest.raises(InvalidGraphError, match=r"circle: x <- y <- x$"):
        check_graph(graph(text), "g")


def test_long_cycle_is_abbreviated() -> None:
    ring = [Node(f"n{i}", "Op", (parse_ref(f"n{(i + 1) % 100}"),)) for i in range(100)]
    with pytest.raises(InvalidGraphError, match=r"n0 <- n1 <- .* <- n7 \.\.\.$"):
        check_graph(Graph(ring), "g")


@pytest.mark.parametrize(
    "name", ["a", "A9", ".a", "a/b", "a_b", "a.b-c", "a\\b", "a>b", "_", "_a", "9"]
)
def test_valid_tensorflow_names_are_accepted(name: str) -> None:
    check_names(Graph([Node(name, "Op")]), "g")


@pytest.mark.parametrize(
    "name", ["", "a b", "a:0", "^a", "-a", "/a", "\\a", "a\n", "\N{MICRO SIGN}", "a,b"]
)
def test_malformed_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidGraphError, match="is not a valid node name"):
        check_graph(Graph([Node(name, "Op")]), "g")


def test_duplicate_name_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="2 nodes have the name 'a'"):
        check_graph(graph("a: Op\na: Op"), "g")


@pytest.mark.parametrize("ref", ["scope/sums", "scope/sums:1", "^scope/sums"])
def test_missing_input_is_reported_with_the_closest_name(ref: str) -> None:
    with pytest.raises(InvalidGraphError) as caught:
        check_inputs(Graph([Node("scope/sum", "Op"), Node("b", "Op", (parse_ref(ref),))]), "g.pb")
    assert caught.value.message == f"node 'b' (Op) takes {ref!r}, which does not exist"
    assert caught.value.hint == "did you mean 'scope/sum'?"
    assert caught.value.where == "g.pb"


def test_tensor_after_a_control_input_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="takes the tensor 'b:1' after a control input"):
        check_graph(graph("a: Op\nb: Op\nc: Op ^a b:1"), "g")


def test_missing_tensor_is_reported() -> None:
    check_tensors(graph("split: Op"), ["split:1", "split", "^split"], "output", "r.yaml:3:1")
    with pytest.raises(InvalidGraphError, match="the output 'splits:1' is not in the graph") as c:
        check_tensors(graph("split: Op"), ["splits:1"], "output", "r.yaml:3:1")
    assert (c.value.hint, c.value.where) == ("did you mean 'split'?", "r.yaml:3:1")
    with pytest.raises(InvalidGraphError) as c:
        check_tensors(graph("split: Op"), ["zzz"], "output", "")
    assert c.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: Op\nb: Op a\nc: Op b", "a b c"),
        ("c: Op b\nb: Op a\na: Op", "a b c"),
        ("a: Op\nb: Op", "a b"),
        ("d: Op b c\nb: Op a\nc: Op a\na: Op", "a b c d"),
        ("a: Op\nb: Op a a:1 ^a", "a b"),
    ],
)
def test_inputs_come_before_their_consumers(text: str, expected: str) -> None:
    assert order(text) == expected


def test_shuffled_nodes_are_sorted() -> None:
    generator = random.Random(1)
    nodes = [Node("n0", "Op")]
    for i in range(1, 300):
        chosen = generator.sample(range(i), min(i, generator.randrange(4)))
        nodes.append(Node(f"n{i}", "Op", tuple(parse_ref(f"n{k}") for k in chosen)))
    generator.shuffle(nodes)
    done: set[str] = set()
    for node in execution_order(Graph(nodes), "g"):
        assert all(r.node in done for r in node.inputs)
        done.add(node.name)
    assert len(done) == 300


def work(count: int, *, cycle: bool) -> int:
    """Count the lines that run to check a chain, with a node that waits for every tenth node."""
    nodes = [Node("n0", "Op", (parse_ref(f"n{count - 1}"),) if cycle else ())]
    nodes += [Node(f"n{i}", "Op", (parse_ref(f"n{i - 1}"),)) for i in range(1, count)]
    nodes.append(Node("all", "NoOp", tuple(parse_ref(f"^n{i}") for i in range(0, count, 10))))
    chain = Graph(nodes)

    def check() -> None:
        if cycle:
            with pytest.raises(InvalidGraphError, match="in a circle"):
                check_graph(chain, "g")
        else:
            check_graph(chain, "g")

    return lines_run(check)


@pytest.mark.parametrize("cycle", [False, True])
def test_checking_takes_linear_time(cycle: bool) -> None:
    assert work(5_000, cycle=cycle) < 11 * work(500, cycle=cycle)


def test_missing_name_among_many_is_reported_quickly() -> None:
    nodes = [Node(f"block{i % 97}/layer{i}/weights", "Op") for i in range(50_000)]
    nodes.append(Node("b", "Op", (parse_ref("block7/layer9/weight"),)))
    started = time.process_time()
    with pytest.raises(InvalidGraphError, match="which does not exist"):
        check_inputs(Graph(nodes), "g")
    assert time.process_time() - started < 2
