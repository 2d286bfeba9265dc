"""The files from outside that a step of a chain reads."""

from __future__ import annotations

from collections.abc import Mapping

from mobileprep.plan.sources import checkpoint_files, single_file
from mobileprep.plan.spec import Files, file_slot
from mobileprep.recipe.model import Step


def plugin_file(step: Step) -> Files | None:
    """The code of a transform from outside the package; None for the package's own.

    Raises:
        CorruptFileError: it is not there.
    """
    return None if step.plugin is None else single_file(step.plugin.file)


def named_files(step: Step) -> Mapping[str, Files]:
    """The files that a step's parameters name, by slot; of a checkpoint, all that belong to it.

    Raises:
        CorruptFileError: a file is not there.
    """
    find = {"checkpoint": checkpoint_files, "path": single_file}
    return {file_slot(f.parameter, f.index): find[f.kind](f.file) for f in step.files}
