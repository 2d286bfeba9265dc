"""No op with a kernel takes more memory than a run may, however large the sizes that it is told.

Every number that a small graph can hold is made large, one at a time: integers of attributes,
shapes, elements of small inputs, and the lengths of inputs by themselves and in pairs. What an op
does with it is up to the op: it refuses, or gives something that fits. So no list of ops that
cannot grow is needed, but for those that no such graph can be made of.
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
from mobileprep.ops.context import context_kernel_names
from mobileprep.ops.kernel import kernel_names
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import f32, i32, run
from tests.ops.growth import examples, grown

if not sys.platform.startswith("linux"):
    pytest.skip("processes are limited as Linux does it", allow_module_level=True)

BUDGET = 8 << 20
PEAK = 64 << 20
"""What an op may take at most: the budget, and what kernels work with."""
ADDRESSES = 4 << 30
EXAMPLES, GRAPHS, PAIRS = 3, 10, 3
"""How many graphs to try of each op, drawn by a fixed seed."""
FETCHED = 100
SECONDS = 300
ALONE = {
    "they have no outputs": {
        *("Assert", "ControlTrigger", "InitializeTable", "InitializeTableFromTextFile"),
        *("InitializeTableFromTextFileV2", "InitializeTableV2", "LookupTableImport"),
        *("LookupTableImportV2", "LookupTableInsert", "LookupTableInsertV2", "NoOp", "PrintV2"),
        *("TensorArrayCloseV2", "TensorArrayCloseV3"),
    },
    "they give a number, or a value for each key": {
        *("LookupTableFind", "LookupTableFindV2", "LookupTableSize", "LookupTableSizeV2"),
    },
    "LiteRT defines it, and no release of TensorFlow": {"TFLite_Detection_PostProcess"},
    "one kernel with the third version": {
        *("TensorArrayConcatV2", "TensorArrayGatherV2", "TensorArrayReadV2", "TensorArraySizeV2"),
        *("TensorArrayScatterV2", "TensorArraySplitV2", "TensorArrayWriteV2"),
    },
}
"""Ops that no graph of constants alone runs, by the reason why they need none here."""
OPS = sorted({*kernel_names(), *context_kernel_names()} - set().union(*ALONE.values()))
GROWING = (
    *("BatchMatMul", "BroadcastTo", "Conv2DBackpropInput", "Fill", "LinSpace", "Mul", "OneHot"),
    *("Pad", "PadV2", "Range", "RandomUniform", "ResizeBilinear", "ScatterNd", "SelectV2"),
    *("ResizeNearestNeighbor", "SpaceToBatchND", "SparseToDense", "TensorListStack", "Tile"),
    *("MatMul", "UnsortedSegmentSum"),
)
"""Some that must be seen to be refused: so it is known that the graphs ask for too much."""


def fetches(graph: Graph, name: str) -> list[str]:
    return [f"{name}:{i}" for i in range(min(output_count(graph[name]) or 0, FETCHED))]


def runs(graph: Graph, name: str) -> bool:
    try:
        Interpreter(graph, combine=False, seed=1).run(fetches(graph, name), {})
    except MobileprepError:
        return False
    return True


@contextmanager
def no_more_memory_than(peak: int, what: str) -> Iterator[None]:
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    yield
    grown_by = tracemalloc.get_traced_memory()[1] - before
    assert grown_by < peak, f"{grown_by >> 20} MB: {what}"


def shown(graph: Graph) -> str:
    nodes = [f"{x.op} { {k: a.value for k, a in x.attrs.items() if k != 'value'} }" for x in graph]
    held = [x.attr_tensor("value").array() for x in graph if x.op == "Const"]
    return f"{nodes}"[:500] + str([(x.shape, x.reshape(-1)[:4].tolist()) for x in held])[:500]


def valid_examples(op: str) -> list[tuple[Graph, str]]:
    return [example for example in examples()[op] if runs(*example)]


def drawn(op: str) -> Iterator[tuple[Graph, str]]:
    rng, valid = random.Random(op), valid_examples(op)
    for graph, name in rng.sample(valid, min(EXAMPLES, len(valid))):
        found = list(grown(graph))
        # The last ones are of two long inputs.
        for asked in [*rng.sample(found, min(GRAPHS, len(found))), *found[-PAIRS:]]:
            yield asked, name


def is_refused(graph: Graph, name: str) -> bool:
    """Whether a graph is refused for the memory that it would take."""
    with no_more_memory_than(PEAK, shown(graph)):
        try:
            Interpreter(graph, combine=False, seed=1).run(fetches(graph, name), {})
        except MemoryLimitError as error:
            assert error.hint, shown(graph)
            return True
        except InvalidGraphError as error:
            # What would have been asked of the system is a check that is missing.
            assert not isinstance(error.__cause__, MemoryError), f"{error}: {shown(graph)}"
        except MobileprepError:
            pass
    return False


def count_refused(op: str) -> int:
    return sum(is_refused(*asked) for asked in drawn(op))


def find_refused(op: str) -> bool:
    every = ((asked, name) for graph, name in valid_examples(op) for asked in grown(graph))
    return any(is_refused(*asked) for asked in every)


def in_a_fork(do: Callable[[str], Any], op: str) -> Any:
    """What ``do`` gives, or a text of what is wrong, from a process with limits."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
            signal.alarm(SECONDS)
            set_limits(memory=BUDGET)
            tracemalloc.start()
            told: Any = do(op)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            told = repr(error)
        os.write(writing, json.dumps(told)[:4000].encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else "the process died"


@pytest.fixture(scope="module", autouse=True)
def made_once() -> None:
    examples()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads
@pytest.mark.parametrize("op", OPS)
def test_an_op_takes_no_more_memory_than_it_may(op: str) -> None:
    refused = in_a_fork(count_refused, op)
    assert isinstance(refused, int), refused


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads
@pytest.mark.parametrize("op", GROWING)
def test_what_the_graphs_ask_for_is_too_much(op: str) -> None:
    assert in_a_fork(find_refused, op) is True


def test_ops_without_a_graph_of_constants_are_listed() -> None:
    unknown = [op for op in OPS if op not in examples()]
    assert unknown == []


def test_a_result_that_passes_the_budget_is_told_in_words() -> None:
    set_limits(memory=BUDGET)
    try:
        with pytest.raises(MemoryLimitError, match=r"node 'y' \(Fill\).* remain") as told:
            run("Fill", i32(BUDGET), f32(0))
    finally:
        set_limits()
    assert "--memory" in told.value.hint
    assert np.shape(run("Fill", i32(4), f32(0))) == (4,)
