"""The stage that freezes the source of targets."""

from __future__ import annotations

from mobileprep.plan.compressor import LEVEL, compressor
from mobileprep.plan.regular_expressions import regex_engine
from mobileprep.plan.sources import file_or_folder, graph_files, single_file, source_checkpoint
from mobileprep.plan.spec import StageSpec, places
from mobileprep.plan.stages import FreezeStage
from mobileprep.recipe.model import Target


def freeze_spec(target: Target) -> StageSpec:
    """The stage that freezes a target's source.

    Raises:
        CorruptFileError: a file that the recipe names is not there.
    """
    source = target.source
    stage = FreezeStage(
        kind=source.kind,
        graph=graph_files(source),
        checkpoint=source_checkpoint(source),
        saver=single_file(source.saver) if source.saver else None,
        assets=file_or_folder(source.assets) if source.assets else None,
        tags=source.tags,
        signature=source.signature,
        freeze=target.freeze,
        inputs=target.inputs,
        outputs=target.outputs,
        # What is frozen already has no variables, and so no initializers.
        regular_expressions="" if source.kind == "frozen" else regex_engine(),
        compressor=compressor(),
        level=LEVEL,
    )
    return StageSpec("freeze", stage, places(target, "source", "freeze", "inputs", "outputs"))
