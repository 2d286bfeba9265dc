"""Frozen graphs to .tflite files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mobileprep.api.models import ModelOptions, load_model
from mobileprep.errors import UsageError
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.frozen import dataclass
from mobileprep.fsio import atomic_writer
from mobileprep.ir.ends import ends, placeholders
from mobileprep.litert.convert import converted
from mobileprep.litert.flex import flex_of
from mobileprep.litert.prepare import CutInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from mobileprep.ir.attrs import TensorShape
    from mobileprep.litert.convert import Mode


@dataclass(frozen=True)
class Converted:
    """What a conversion wrote.

    Args:
        file: the .tflite file.
        size: its bytes.
        operators: how many operators run.
        inputs: the tensors that are fed, in order.
        outputs: the tensors that are fetched, in order.
        flex: the ops that the Flex delegate has to run, sorted; none as a rule.
    """

    file: Path
    size: int
    operators: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flex: tuple[str, ...] = ()


def convert_to_tflite(
    source: Path,
    target: Path,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    shapes: Mapping[str, TensorShape] | None = None,
    mode: Mode = "float",
    flex: bool = False,
    warn: Callable[[str], None],
) -> Converted:
    """Write a model as a .tflite file, atomically.

    Args:
        source: a frozen graph, a SavedModel's folder, or a MetaGraph.
        target: the file to write.
        inputs: the tensors that are fed; empty for the placeholders.
        outputs: the tensors that are fetched; empty for those of the signature, or the ends.
        shapes: shapes of inputs by name, -1 for sizes that stay open; others are the graph's.
        mode: how weights are stored.
        flex: whether ops that LiteRT cannot express are left to the Flex delegate.
        warn: told in a sentence what the user should know.

    Raises:
        UnsupportedError: naming every node that LiteRT cannot express; or flatbuffers is missing.
        UsageError: a name is not in the graph, or a placeholder that is needed is no input.
        CorruptFileError: the model is missing or damaged.
        InvalidGraphError: the graph is malformed.
        ArtifactError: the file cannot be written, or would pass 2 GiB.
    """
    model = load_model(source, ModelOptions(tuple(outputs)), warn)
    fed = tuple(map(model.tensor, inputs)) or tuple(placeholders(model.graph))
    fetched = model.tensors(tuple(outputs)) or model.outputs or tuple(ends(model.graph))
    if not fetched:
        message = "no tensors are named that the model is to compute"
        raise UsageError(message, "give --outputs=a,b", str(source))
    known = {model.tensor(name): shape for name, shape in (shapes or {}).items()}
    specs = [CutInput(name, known.get(name)) for name in fed]
    record = converted(model.graph, specs, fetched, mode=mode, flex=flex, where=str(source))
    content = model_bytes(record, str(target))
    with atomic_writer(target) as stream:
        stream.write(content)
    operators = len(record.subgraphs[0].operators)
    return Converted(target, len(content), operators, fed, fetched, flex_of(record))
