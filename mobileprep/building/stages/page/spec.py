"""The stage `nodes`: the node table of the report page."""

from __future__ import annotations

from typing import ClassVar

from mobileprep.building.plan.spec import Stage, Upstream
from mobileprep.recipe.settings import InputSpec


class NodesStage(Stage, frozen=True, kw_only=True):
    """Data for the report page about the nodes of a target's source or published graph.

    Args:
        inputs: inputs, with the shapes that the recipe declares.
        graph: the frozen source, or the graph after all transforms.
        ranges: range files of the calibrations.
    """

    stage_name: ClassVar[str] = "nodes"
    stage_version: ClassVar[int] = 3
    RECORD: ClassVar[str] = "nodes.json"

    inputs: tuple[InputSpec, ...] = ()
    graph: Upstream
    ranges: tuple[Upstream, ...] = ()
