"""Whether a model runs on TensorFlow Mobile and on LiteRT, and what to change where it does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mobileprep.api.graphs import check_holds_nodes
from mobileprep.api.models import ModelOptions, computed_ends, load_model
from mobileprep.errors import TransformError, UsageError
from mobileprep.frozen import dataclass
from mobileprep.ir.ends import placeholders
from mobileprep.ir.tflite import is_tflite_graph
from mobileprep.migration.records import Migration
from mobileprep.migration.survey import surveyed
from mobileprep.opdefs.definitions import DEFAULT_RELEASE
from mobileprep.runtime.engines.assets import folders_near, with_found_assets
from mobileprep.transforms.base import Context


@dataclass(frozen=True)
class MigratedModel(Migration):
    """A model's ways to all runtimes.

    Args:
        graph: its path.
        platform: what TensorFlow Mobile is built for.
    """

    graph: str
    platform: str


def migrate(
    path: Path,
    platform: str,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tensorflow: str = DEFAULT_RELEASE,
    tell: Callable[[str], None] = lambda _: None,
) -> MigratedModel:
    """Try a model on each runtime, by what is known of it and by converting.

    Args:
        path: a GraphDef, a SavedModel or a MetaGraph.
        platform: a name of ``packaging.targets.PLATFORMS``.
        inputs: the tensors that are fed, where the model is cut off; empty for the placeholders
            that something reads.
        outputs: what is fetched; empty for the signature's, or the graph's ends.
        tensorflow: the TensorFlow release of the app.
        tell: told in a sentence what freezing changed.

    Raises:
        UsageError: a name is not in the graph, or the file is for LiteRT already.
        CorruptFileError: a file is missing or damaged.
        InvalidGraphError: the model is malformed, or holds no nodes.
        UnsupportedError: there is no such platform, the model cannot be frozen, or flatbuffers
            is not installed.
    """
    model = load_model(path, ModelOptions(tuple(outputs)), tell)
    check_holds_nodes(model.graph, str(path))
    if is_tflite_graph(model.graph):
        message = "the file is for LiteRT already"
        raise UsageError(message, "mobileprep summarize tells what is in it", str(path))
    graph = with_found_assets(model.graph, folders_near(model.path))
    fetched = model.tensors(tuple(outputs)) or model.outputs or computed_ends(graph)
    fed = tuple(map(model.tensor, inputs)) or tuple(placeholders(graph))
    try:
        found = surveyed(graph, Context(fed, fetched), platform, tensorflow, is_part=bool(inputs))
    except TransformError as error:
        raise UsageError(error.message, error.hint, str(path)) from error
    return MigratedModel(**vars(found), graph=str(path), platform=platform)
