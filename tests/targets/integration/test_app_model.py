"""Inputs and outputs of a graph for app code."""

from __future__ import annotations

import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.targets.integration.render import AppTensor, app_tensors
from tests.building.stages.jobs import classifier


def test_dtypes_and_shapes_come_from_the_graph_and_recipe() -> None:
    inputs, outputs = app_tensors(classifier(), ["x"], ["y:0"], {"x": (5, -1)})
    assert inputs == (AppTensor("x", DType.FLOAT, (5, 3)),)
    assert outputs == (AppTensor("y:0", DType.FLOAT, (5, 3)),)


@pytest.mark.parametrize(("inputs", "outputs"), [(["no"], ["y"]), (["x"], ["no"])])
def test_unknown_name_is_refused(inputs: list[str], outputs: list[str]) -> None:
    with pytest.raises(InvalidGraphError, match="'no' is not in the graph"):
        app_tensors(classifier(), inputs, outputs, {})


@pytest.mark.parametrize(
    ("shape", "count", "row"),
    [
        ((2, 3), 6, None),
        ((), 1, None),
        ((-1, 2, 3), None, 6),
        ((-1, -1), None, None),
        ((-1, 0), None, None),
        (None, None, None),
        ((1 << 16, 1 << 16), None, None),
    ],
)
def test_elements_are_counted_if_sizes_are_known(
    shape: tuple[int, ...] | None, count: int | None, row: int | None
) -> None:
    tensor = AppTensor("x", DType.FLOAT, shape)
    assert (tensor.count, tensor.row) == (count, row)
