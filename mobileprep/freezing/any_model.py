"""Freeze models of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from mobileprep.core.arguments import FilePath, Warn, as_warning, names_of
from mobileprep.freezing.freeze import freeze as freeze_source
from mobileprep.freezing.loading import open_source
from mobileprep.freezing.model import FreezeOptions, FreezeResult


def freeze(
    model: FilePath,
    outputs: Sequence[str] = (),
    *,
    signature: str = "",
    checkpoint: FilePath | None = None,
    saver: FilePath | None = None,
    tags: Sequence[str] = (),
    options: FreezeOptions | None = None,
    warn: Warn | None = None,
) -> FreezeResult:
    """Convert the variables of a model to constants, and keep only the nodes that its outputs need.

    Args:
        model: a GraphDef, a MetaGraph (``.meta``), or a SavedModel directory, detected from the
            content.
        outputs: tensors to keep, or outputs of the signature. Default: all outputs of the
            signature.
        signature: name of the signature. Default: ``serving_default``, or the only one.
        checkpoint: checkpoint with the variables: a prefix, any file of the set, or a directory.
            Default: the checkpoint next to a MetaGraph, or in a SavedModel.
        saver: a SaverDef that names the restore op of the graph.
        tags: tags of the MetaGraph in a SavedModel. Default: the one for serving.
        options: other options; ``outputs`` and ``signature`` override its fields if set.
        warn: function to call with each warning. Default: issue a ``MobileprepWarning``.

    Raises:
        UsageError: if no outputs are known, or no MetaGraph has the tags.
        CorruptFileError: if a file is missing or damaged.
        InvalidGraphError: if the model is malformed, an output does not exist, or a variable has no
            value.
        UnsupportedError: if the model contains something that cannot be frozen.
    """
    chosen = options or FreezeOptions()
    chosen = replace(
        chosen,
        outputs=names_of(outputs) or chosen.outputs,
        signature=signature or chosen.signature,
    )
    source = open_source(
        Path(model),
        checkpoint=None if checkpoint is None else Path(checkpoint),
        saver=None if saver is None else Path(saver),
        tags=names_of(tags),
    )
    result = freeze_source(source, chosen)
    for sentence in result.warnings:
        (warn or as_warning)(sentence)
    return result
