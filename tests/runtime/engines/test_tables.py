"""Tables are filled before they are looked into."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from mobileprep.runtime.engines.subgraph import TableFiller
from tests.ops.lookup.test_tables import filled, table, text_const
from tests.ops.strings.test_joining import texts
from tests.transforms.graphs import const, node

WORDS = {"words": texts("no", "?")}


def test_an_engine_fills_the_tables_that_it_needs() -> None:
    engine = open_engine("numpy", filled(), None)
    assert engine.run(["find"], WORDS)[0].tolist() == [8, -1]
    assert engine.run(["size"], {})[0] == 2


def test_tables_are_filled_once_and_only_where_needed() -> None:
    filler = TableFiller(filled(), "graph")
    assert list(filler.due(["default"], {})) == []
    assert list(filler.due(["find"], WORDS)) == ["fill"]
    assert list(filler.due(["find"], WORDS)) == []


def test_a_look_up_that_is_fed_needs_no_table() -> None:
    filler = TableFiller(filled(), "graph")
    assert list(filler.due(["find"], {"find": texts("x")})) == []


def mutable(*fill: str) -> Graph:
    """A table that may change, and what enters constants or fed words into it."""
    nodes = [
        text_const("keys", texts("yes", "no")),
        const("values", [7, 8], np.int64),
        node("numbers", "Placeholder", T=None, dtype=DType.INT64),
        *(node(f"fill{i}", *kind.split(" ", 1), T=None) for i, kind in enumerate(fill)),
    ]
    return table(nodes, kind="MutableHashTable")


@pytest.mark.parametrize("kind", ["LookupTableImportV2", "LookupTableInsertV2"])
def test_tables_that_may_change_are_filled_too(kind: str) -> None:
    engine = open_engine("numpy", mutable(f"{kind} table keys values"), None)
    assert engine.run(["find"], WORDS)[0].tolist() == [8, -1]


def test_what_waits_for_a_feed_is_left_to_the_graph() -> None:
    graph = mutable("LookupTableInsertV2 table words numbers")
    assert list(TableFiller(graph, "graph").due(["find"], WORDS)) == []
    assert open_engine("numpy", graph, None).run(["find"], WORDS)[0].tolist() == [-1, -1]


def test_filling_is_not_observed() -> None:
    seen: list[str] = []

    def observe(nodes, start, seconds, outputs) -> None:
        seen.extend(n.name for n in nodes)

    engine = NumpyEngine(filled(), "graph", observer=observe)
    assert engine.run(["find"], WORDS)[0].tolist() == [8, -1]
    assert "find" in seen
    assert "fill" not in seen
