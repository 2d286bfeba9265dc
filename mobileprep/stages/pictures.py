"""How an app's pictures become values of an input, by what a recipe says of its data."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.errors import AccuracyError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.refs import parse_ref
from mobileprep.packaging.integration.app_model import AppTensor, Pictures
from mobileprep.plan.app_stages import IntegrationStage
from mobileprep.plan.stages import PackageStage


def pictures_of(
    asked: IntegrationStage | PackageStage, inputs: Sequence[AppTensor]
) -> Pictures | None:
    """How pictures become values, the data's defaults filled in; None where none are fed.

    Args:
        asked: what a stage is told of the data's pictures.
        inputs: what is fed.

    Raises:
        AccuracyError: the numbers that they are normalized by do not fit their channels.
    """
    reading, named = asked.reading, asked.picture_input
    fed = [t for t in inputs if named is None or parse_ref(t.name) == parse_ref(named)]
    if reading is None or len(fed) != 1:
        return None
    count = 1 if reading.channels == "grayscale" else 3
    numbers = []
    whole = fed[0].dtype is not DType.FLOAT
    for key, given in (
        ("mean", reading.mean or (0.0,)),
        ("std", reading.std or (1.0 if whole else 255.0,)),
    ):
        if len(given) not in (1, count):
            message = f"{key!r} has {len(given)} numbers for {count} channels"
            raise AccuracyError(message, "give one number, or one for each channel")
        numbers.append(given * count if len(given) == 1 else given)
    return Pictures(fed[0].name, reading.channels, *numbers)
