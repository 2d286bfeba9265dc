"""Whether a build of TensorFlow loads a graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mobileprep.api.graphs import check_holds_nodes
from mobileprep.api.models import ModelOptions, load_model
from mobileprep.formats.kinds import kind_of
from mobileprep.formats.mapped_file import map_file
from mobileprep.frozen import dataclass
from mobileprep.ir.files import read_shipped_graph
from mobileprep.packaging.target_check import TargetGap, target_gaps


@dataclass(frozen=True)
class TargetCheck:
    """What a build of TensorFlow lacks for a graph.

    Args:
        graph: its path.
        tensorflow: the release.
        platform: what the build is for.
        loads: whether nothing is missing.
        gaps: what is.
    """

    graph: str
    tensorflow: str
    platform: str
    loads: bool
    gaps: tuple[TargetGap, ...]


def check_target(
    path: Path,
    release: str,
    platform: str,
    *,
    selective: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> TargetCheck:
    """Check a GraphDef as it stands, memory-mapped ones too, or another model as it is frozen.

    Args:
        path: of the model.
        release: of TensorFlow.
        platform: a name of ``packaging.targets.PLATFORMS``.
        selective: whether the app builds with the registration header and its fragments.
        tell: told in a sentence what freezing changed.

    Raises:
        CorruptFileError: a file is missing or damaged.
        InvalidGraphError: the model is malformed, or holds no nodes.
        UnsupportedError: there is no such platform, or the model cannot be frozen.
    """
    frozen = path.is_dir() or kind_of(map_file(path)) != "GraphDef"
    graph = load_model(path, ModelOptions(), tell).graph if frozen else read_shipped_graph(path)
    check_holds_nodes(graph, str(path))
    gaps = target_gaps(graph, release, platform, selective=selective)
    return TargetCheck(str(path), release, platform, not gaps, gaps)
