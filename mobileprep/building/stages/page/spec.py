"""The stage `nodes`: the node table of the report page."""

from __future__ import annotations

from typing import ClassVar

from mobileprep.building.plan.spec import Stage, Upstream
from mobileprep.recipe.settings import InputSpec


class NodesStage(Stage, frozen=True, kw_only=True):
    """What the report page tells of the nodes of a target's source, or of what it ships.

    Args:
        inputs: what is fed, with the shapes that the recipe declares.
        graph: the frozen source, or the graph after all transforms.
        ranges: the range files that calibrations left.
    """

    stage_name: ClassVar[str] = "nodes"
    stage_version: ClassVar[int] = 3
    LEFT: ClassVar[str] = "nodes.json"

    inputs: tuple[InputSpec, ...] = ()
    graph: Upstream
    ranges: tuple[Upstream, ...] = ()

    @property
    def output_files(self) -> tuple[str, ...]:
        """All of it in one file, as the page has it."""
        return (self.LEFT,)
