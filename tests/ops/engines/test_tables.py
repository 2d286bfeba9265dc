"""Tables are filled before they are looked into."""

from __future__ import annotations

from mobileprep.ops.engines.choose import open_engine
from mobileprep.ops.engines.tables import TableFiller
from tests.ops.kernels.test_strings import texts
from tests.ops.kernels.test_tables import filled

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
