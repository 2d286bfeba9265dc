"""The files from outside that a target depends on."""

from __future__ import annotations

from collections.abc import Iterator

from mobileprep.plan.app import app_classes
from mobileprep.plan.calibrating import calibration_members
from mobileprep.plan.sources import (
    data_files,
    file_or_folder,
    graph_files,
    single_file,
    source_checkpoint,
)
from mobileprep.plan.spec import StageFile
from mobileprep.plan.step_files import named_files, plugin_file
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Source


def outside_files(target: Target) -> Iterator[StageFile]:
    """The files from outside that a target depends on."""
    yield from _source_files(target.source)
    if target.validation is not None:
        yield from data_files(target.validation.data).members
        for file in target.validation.functions:
            yield from single_file(file).members
    yield from calibration_members(target)
    yield from () if target.device_file is None else single_file(target.device_file).members
    if target.check is not None and target.check.data is not None:
        yield from data_files(target.check.data).members
    classes = app_classes(target)
    if classes is not None:
        yield from single_file(classes).members
    for file in (file for op in target.ops for file in op.sources):
        yield from single_file(file).members
    for step in target.transforms:
        plugin = plugin_file(step)
        yield from () if plugin is None else plugin.members
        for files in named_files(step).values():
            yield from files.members


def _source_files(source: Source) -> Iterator[StageFile]:
    yield from graph_files(source).members
    checkpoint = source_checkpoint(source)
    if checkpoint is not None:
        yield from checkpoint.members
    if source.saver is not None:
        yield from single_file(source.saver).members
    if source.assets is not None:
        yield from file_or_folder(source.assets).members
