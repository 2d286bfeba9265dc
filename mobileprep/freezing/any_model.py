"""Models of any kind to frozen graphs."""

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
    """Turn a model's variables into constants, and keep what its outputs need.

    Args:
        model: a GraphDef, a MetaGraph (``.meta``), or the folder of a SavedModel; the content says
            which.
        outputs: the tensors to keep, or outputs of the signature; by default all of those.
        signature: the signature that is meant; by default ``serving_default``, or the only one.
        checkpoint: the values of the variables: a prefix, any file of the set, or a folder. By
            default a MetaGraph's own beside it, and a SavedModel's inside.
        saver: a SaverDef that names the op by which the graph restores.
        tags: those of the MetaGraph of a SavedModel; by default the one for serving.
        options: the further choices; ``outputs`` and ``signature``, where given, go before its own.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Raises:
        UsageError: no outputs are known, or no MetaGraph has the tags.
        CorruptFileError: a file is missing or damaged.
        InvalidGraphError: the model is malformed, an output is not there, or a variable has no
            value.
        UnsupportedError: the model holds what cannot be frozen.
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
