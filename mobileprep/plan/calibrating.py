"""The stage that finds ranges for a step of a chain."""

from __future__ import annotations

from collections.abc import Iterator

from mobileprep.errors import CorruptFileError
from mobileprep.plan.checks import Frozen, labels_of
from mobileprep.plan.engines import engine_choice
from mobileprep.plan.regular_expressions import regex_engine
from mobileprep.plan.running_stages import CalibrateStage
from mobileprep.plan.sources import data_files, single_file
from mobileprep.plan.spec import Files, StageFile, StageSpec, Upstream, places
from mobileprep.recipe.model import Target
from mobileprep.recipe.quantize_settings import Calibration
from mobileprep.recipe.settings import Data


def calibrate_spec(
    target: Target,
    calibration: Calibration,
    label: str,
    graph: Upstream,
    frozen: Frozen,
    *,
    for_litert: bool = False,
) -> StageSpec:
    """The stage that finds the ranges of a float graph.

    Args:
        target: the target.
        calibration: its calibration.
        label: the task's.
        graph: the float graph.
        frozen: what freezing left.
        for_litert: whether the ranges are for a file that LiteRT runs.

    Raises:
        CorruptFileError: neither the data nor a range file is there.
    """
    data, range_file = calibration_files(calibration)
    stage = CalibrateStage(
        calibration=calibration,
        data=data,
        labels=labels_of(target),
        inputs=target.inputs,
        range_file=range_file,
        graph=graph,
        source=frozen.graph,
        interface=frozen.interface,
        assets=frozen.assets,
        regular_expressions=regex_engine(),
        for_litert=for_litert,
        engine=engine_choice(target) if range_file is None and target.engine != "numpy" else None,
    )
    where = places(target, "calibration", "inputs", "outputs", "artifact", "engine")
    return StageSpec(label, stage, where)


def calibration_files(calibration: Calibration) -> tuple[Files | None, Files | None]:
    """The samples, and the range file; either may be missing where the other is there.

    Raises:
        CorruptFileError: neither is there.
    """
    named, data = calibration.range_file, calibration.data
    if named is not None and named.path.is_file():
        known = None if data is None or not _is_there(data) else data_files(data)
        return known, single_file(named)
    if data is not None:
        return data_files(data), None
    hint = "name samples, 'data: samples.npz', and run 'mobileprep calibrate' to write it"
    name, place = ("", "") if named is None else (named.shown, named.place)
    message = f"the range file {name} is not there"
    raise CorruptFileError(message, hint, place)


def _is_there(data: Data) -> bool:
    return all(named.path.exists() for named in (data.file, *data.beside))


def calibration_members(target: Target) -> Iterator[StageFile]:
    """The files from outside that a target's calibration reads."""
    if target.calibration is None or not target.takes_ranges:
        return
    for files in calibration_files(target.calibration):
        yield from () if files is None else files.members
