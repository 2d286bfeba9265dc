"""Lookup tables are filled before use."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.runtime.engines.choose import open_engine
from mobileprep.runtime.engines.graph_engines import NumpyEngine
from mobileprep.runtime.engines.subgraph import TableFiller
from tests.ops.lookup.test_tables import filled, table, text_const
from tests.ops.strings.test_conversion import texts
from tests.transforms.graphs import const, node

WORDS = {"words": texts("no", "?")}


def test_engine_fills_its_tables() -> None:
    engine = open_engine("numpy", filled(), None)
    assert engine.run(["find"], WORDS)[0].tolist() == [8, -1]
    assert engine.run(["size"], {})[0] == 2


def test_tables_are_filled_once_if_needed() -> None:
    filler = TableFiller(filled(), "graph")
    assert list(filler.due(["default"], {})) == []
    assert list(filler.due(["find"], WORDS)) == ["fill"]
    assert list(filler.due(["find"], WORDS)) == []


def test_fed_lookup_needs_no_table() -> None:
    filler = TableFiller(filled(), "graph")
    assert list(filler.due(["find"], {"find": texts("x")})) == []


def mutable_table(*fill: str) -> Graph:
    """A mutable_table table, and nodes that insert constants or feeds."""
    nodes = [
        text_const("keys", texts("yes", "no")),
        const("values", [7, 8], np.int64),
        node("numbers", "Placeholder", T=None, dtype=DType.INT64),
        *(node(f"fill{i}", *kind.split(" ", 1), T=None) for i, kind in enumerate(fill)),
    ]
    return table(nodes, kind="MutableHashTable")


@pytest.mark.parametrize("kind", ["LookupTableImportV2", "LookupTableInsertV2"])
def test_mutable_tables_are_filled(kind: str) -> None:
    engine = open_engine("numpy", mutable_table(f"{kind} table keys values"), None)
    assert engine.run(["find"], WORDS)[0].tolist() == [8, -1]


def test_fill_that_depends_on_a_feed_is_skipped() -> None:
    graph = mutable_table("LookupTableInsertV2 table words numbers")
    assert list(TableFiller(graph, "graph").due(["find"], WORDS)) == []
    assert open_engine("numpy", graph, None).run(["find"], WORDS)[0].tolist() == [-1, -1]


def test_filling_is_not_observed() -> None:
    names: list[str] = []

    def observe(nodes, *_) -> None:
        names.extend(n.name for n in nodes)

    engine = NumpyEngine(filled(), "graph", observer=observe)
    assert engine.run(["find"], WORDS)[0].tolist() == [8, -1]
    assert "find" in names
    assert "fill" not in names
