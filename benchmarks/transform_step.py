"""Measure the processor time of a transform on a long graph, for ``transforms.py``.

    python benchmarks/transform_step.py NAME NODES tf115|recipe

Prints the seconds of the whole process, of reading, transforming, and writing, and of the transform
only. Runs the transform on a few nodes first, so that imports count as start-up. The garbage
collector has the settings of the command line. Fails if the transform matches less than half of its
patterns in the graph.
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
    """Return the processor time of all work on a chain of ``size`` nodes, and of the transform."""
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
