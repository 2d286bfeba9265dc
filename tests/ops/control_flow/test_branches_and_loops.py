"""Switch, Merge, loops and conditionals."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case

OP_CASES = [
    case("Switch", [(2, -1), ()], [(2, -1), (2, -1)]),
    case("RefSwitch", [(2, 3), ()], [(2, 3), (2, 3)]),
    case("Merge", [(2, 3), (2, 3)], [(2, 3), ()]),
    case("Merge", [(2, 3), (4, 3)], [(-1, 3), ()]),
    case("Merge", [(2, 3), (2,)], [None, ()]),
    case("Merge", [(2, 3), None], [None, ()]),
    case("RefMerge", [(2, 3), (2, 4)], [(2, -1), ()]),
    case("Enter", [(2, 3)], [None], frame_name="f"),
    case("Enter", [(2, 3)], [(2, 3)], frame_name="f", is_constant=True),
    *(
        case(op, [(2, 3)], [(2, 3)])
        for op in ("Exit", "NextIteration", "RefExit", "RefNextIteration")
    ),
    case("RefEnter", [(2, 3)], [(2, 3)], frame_name="f"),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
