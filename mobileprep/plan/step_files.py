"""The files from outside that a step of a chain reads, by the slot of its stage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mobileprep.plan.sources import checkpoint_files, single_file
from mobileprep.plan.spec import PLUGIN_SLOT, InputFile, file_slot
from mobileprep.recipe.model import Step


def step_files(step: Step) -> Mapping[str, tuple[InputFile, ...]]:
    """The files that a step reads; of a checkpoint, all that belong to it.

    The code of a transform from outside the package is one of them.

    Raises:
        CorruptFileError: a file is not there.
    """
    found = {} if step.plugin is None else {PLUGIN_SLOT: single_file(step.plugin.file)}
    for named in step.files:
        find = checkpoint_files if named.kind == "checkpoint" else single_file
        found[file_slot(named.parameter, named.index)] = find(named.file)
    return found


def step_roots(step: Step) -> Mapping[str, Path]:
    """Where the recipe's names of those files lead: for a checkpoint, to its prefix."""
    found = {} if step.plugin is None else {PLUGIN_SLOT: step.plugin.file.path}
    return found | {file_slot(f.parameter, f.index): f.file.path for f in step.files}
