"""One step of ``transforms.py``: prints processor seconds of a transform of a long graph.

    python benchmarks/transform_step.py NAME NODES tf115|recipe

Prints what a whole process takes, then what reading, transforming and writing take together, then
the transform alone. It runs on a few nodes first, so that imports are done; until then is what any
process takes to start. The garbage collector is set as the command line sets it. It is an error
when fewer than half of the places in the graph that are made for the transform are found.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from synthetic import CASES, INPUT, OUTPUT, Case, chain_of, options_of

from mobileprep.cli.main import collect_seldom
from mobileprep.graph.files import read_graph, write_graph
from mobileprep.transforms.base import Context
from mobileprep.transforms.chains.chain import ChainStep, run_chain

_FEW = 100
# Transforms that act on the graph as a whole.
_ONE_PLACE = frozenset({"rename_node"})


def main() -> None:
    name, size, mode = sys.argv[1:]
    case = CASES[name]
    collect_seldom()
    seconds_of(name, case, _FEW, mode)
    start = time.process_time()
    work, alone = seconds_of(name, case, int(size), mode)
    print(start + work, work, alone)


def seconds_of(name: str, case: Case, size: int, mode: str) -> tuple[float, float]:
    """The processor time of all the work on a chain of so many nodes, and of the transform."""
    context = Context((INPUT,), (OUTPUT,), tf115=mode == "tf115")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.pb"
        graph, units = chain_of(case, size)
        write_graph(path, graph)
        del graph
        step = ChainStep(name, options_of(case, units, Path(folder)))
        started = time.process_time()
        read = read_graph(path)
        before = time.process_time()
        after, records = run_chain(read, [step], context)
        took = time.process_time() - before
        write_graph(path, after)
        whole = time.process_time() - started
    matched, wanted = records[0].matched, 1 if name in _ONE_PLACE else units // 2
    if matched < wanted:
        sys.exit(f"{name} found {matched} places of {units}")
    return whole, took


if __name__ == "__main__":
    main()
