"""Ops with huge sizes stay within the memory limit.

Each number in a small graph becomes large, one at a time: integer attributes, shapes, elements of
small inputs, and the lengths of one or two inputs. The op must refuse or return a small result.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from mobileprep.core.limits import set_limits
from mobileprep.errors import InvalidGraphError, MemoryLimitError, MobileprepError
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.definitions import output_count
from mobileprep.ops.kernel import context_kernel_names, kernel_names
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import f32, i32, run
from tests.ops.growth import examples, grown

if not sys.platform.startswith("linux"):
    pytest.skip("needs Linux process limits", allow_module_level=True)

BUDGET = 8 << 20
PEAK = 64 << 20
"""Memory limit of an op: the budget plus scratch memory of kernels."""
ADDRESSES = 4 << 30
EXAMPLES, GRAPHS, PAIRS = 3, 10, 3
"""Numbers of graphs to try for each op, sampled with a fixed seed."""
FETCHED = 100
SECONDS = 300
WITHOUT_GRAPH = {
    "no outputs": {
        *("Assert", "ControlTrigger", "InitializeTable", "InitializeTableFromTextFile"),
        *("InitializeTableFromTextFileV2", "InitializeTableV2", "LookupTableImport"),
        *("LookupTableImportV2", "LookupTableInsert", "LookupTableInsertV2", "NoOp", "PrintV2"),
        *("TensorArrayCloseV2", "TensorArrayCloseV3"),
    },
    "one number, or one value per key": {
        *("LookupTableFind", "LookupTableFindV2", "LookupTableSize", "LookupTableSizeV2"),
    },
    "defined by LiteRT, not by TensorFlow": {
        *("TFLite_Detection_PostProcess", "UnidirectionalSequenceLSTM"),
        "UnidirectionalSequenceRNN",
    },
    "same kernel as GatherTree": {"Addons>GatherTree"},
    "same kernel as the third version": {
        *("TensorArrayConcatV2", "TensorArrayGatherV2", "TensorArrayReadV2", "TensorArraySizeV2"),
        *("TensorArrayScatterV2", "TensorArraySplitV2", "TensorArrayWriteV2"),
    },
}
"""Ops that cannot be tested with a graph of constants, by reason."""
OPS = sorted({*kernel_names(), *context_kernel_names()} - set().union(*WITHOUT_GRAPH.values()))
GROWING = (
    *("BatchMatMul", "BroadcastTo", "Conv2DBackpropInput", "Fill", "LinSpace", "Mul", "OneHot"),
    *("Pad", "PadV2", "Range", "RandomUniform", "ResizeBilinear", "ScatterNd", "SelectV2"),
    *("ResizeNearestNeighbor", "SpaceToBatchND", "SparseToDense", "TensorListStack", "Tile"),
    *("MatMul", "UnsortedSegmentSum"),
)
"""Ops that must refuse a graph: checks that the graphs request too much."""


def fetches(graph: Graph, name: str) -> list[str]:
    return [f"{name}:{i}" for i in range(min(output_count(graph[name]) or 0, FETCHED))]


def runs(graph: Graph, name: str) -> bool:
    try:
        Interpreter(graph, combine=False, seed=1).run(fetches(graph, name), {})
    except MobileprepError:
        return False
    return True


@contextmanager
def limited_memory(peak: int, message: str) -> Iterator[None]:
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    yield
    grown_by = tracemalloc.get_traced_memory()[1] - before
    assert grown_by < peak, f"{grown_by >> 20} MB: {message}"


def shown(graph: Graph) -> str:
    nodes = [f"{x.op} { {k: a.value for k, a in x.attrs.items() if k != 'value'} }" for x in graph]
    held = [x.attr_tensor("value").array() for x in graph if x.op == "Const"]
    return f"{nodes}"[:500] + str([(x.shape, x.reshape(-1)[:4].tolist()) for x in held])[:500]


def valid_examples(op: str) -> list[tuple[Graph, str]]:
    return [example for example in examples()[op] if runs(*example)]


def sampled_graphs(op: str) -> Iterator[tuple[Graph, str]]:
    rng, valid = random.Random(op), valid_examples(op)
    for graph, name in rng.sample(valid, min(EXAMPLES, len(valid))):
        variants = list(grown(graph))
        # The last ones are of two long inputs.
        for variant in [*rng.sample(variants, min(GRAPHS, len(variants))), *variants[-PAIRS:]]:
            yield variant, name


def is_refused(graph: Graph, name: str) -> bool:
    """Whether a graph is refused because of the memory limit."""
    with limited_memory(PEAK, shown(graph)):
        try:
            Interpreter(graph, combine=False, seed=1).run(fetches(graph, name), {})
        except MemoryLimitError as error:
            assert error.hint, shown(graph)
            return True
        except InvalidGraphError as error:
            # A MemoryError from the system is a missing check.
            assert not isinstance(error.__cause__, MemoryError), f"{error}: {shown(graph)}"
        except MobileprepError:
            pass
    return False


def count_refused(op: str) -> int:
    return sum(is_refused(*args) for args in sampled_graphs(op))


def find_refused(op: str) -> bool:
    every = ((variant, name) for graph, name in valid_examples(op) for variant in grown(graph))
    return any(is_refused(*args) for args in every)


def run_in_fork(check: Callable[[str], Any], op: str) -> Any:
    """The result of ``check``, or an error message, from a process with limits."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
            signal.alarm(SECONDS)
            set_limits(memory=BUDGET)
            tracemalloc.start()
            result: Any = check(op)
        except BaseException as error:  # noqa: BLE001 - the parent reports it
            result = repr(error)
        os.write(writing, json.dumps(result)[:4000].encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else "the process died"


@pytest.fixture(scope="module", autouse=True)
def examples_once() -> None:
    examples()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads
@pytest.mark.parametrize("op", OPS)
def test_op_stays_within_the_memory_limit(op: str) -> None:
    refused = run_in_fork(count_refused, op)
    assert isinstance(refused, int), refused


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads
@pytest.mark.parametrize("op", GROWING)
def test_huge_graph_is_refused(op: str) -> None:
    assert run_in_fork(find_refused, op) is True


def test_every_op_has_an_example_graph() -> None:
    unknown = [op for op in OPS if op not in examples()]
    assert unknown == []


def test_memory_limit_error_names_node_and_option() -> None:
    set_limits(memory=BUDGET)
    try:
        with pytest.raises(MemoryLimitError, match=r"node 'y' \(Fill\).* remain") as error:
            run("Fill", i32(BUDGET), f32(0))
    finally:
        set_limits()
    assert "--memory" in error.value.hint
    assert np.shape(run("Fill", i32(4), f32(0))) == (4,)
