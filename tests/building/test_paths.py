"""Where warnings of the public functions point."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

from doit.action import PythonAction

from mobileprep import Graph, MobileprepWarning, transform
from mobileprep.core.arguments import as_warning
from tests.freezing.graphs import FLOAT, node, placeholder
from tests.transforms.graphs import const


def line_of(call: Callable[[], object]) -> str:
    """The source line at which a call's first warning points."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    first = caught[0]
    assert issubclass(first.category, MobileprepWarning)
    lines = Path(first.filename).read_text(encoding="utf-8").splitlines()
    return lines[first.lineno - 1].strip()


def test_a_warning_points_at_the_call() -> None:
    def called() -> None:
        as_warning("a sentence")  # here

    assert line_of(called) == 'as_warning("a sentence")  # here'


def test_a_warning_under_doit_points_at_the_call() -> None:
    def called() -> None:
        PythonAction(as_warning, ["a sentence"]).execute()  # here, though doit calls us

    assert line_of(called).endswith("# here, though doit calls us")


def graph() -> Graph:
    nodes = [placeholder("x", -1, 4), const("w", [1.0, 2.0, 3.0, 4.0])]
    return Graph([*nodes, node("out", "Mul", "x", "w", T=FLOAT)])


def test_warnings_from_within_a_chain_point_at_the_user_s_line() -> None:
    def called() -> None:
        transform(graph(), ["remove_device"], ["nowhere"], ["out"])  # the user's line

    assert line_of(called).endswith("# the user's line")


def test_warnings_of_a_step_point_at_the_user_s_line() -> None:
    rename = {"rename_node": {"old_node_name": "w", "new_node_name": "out", "ignore_errors": True}}

    def called() -> None:
        transform(graph(), [rename], ["x"], ["out"])  # the user's line

    assert line_of(called).endswith("# the user's line")
