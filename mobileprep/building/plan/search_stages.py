"""The kinds of stages by which ``quantize: auto`` looks for layers to leave out of eight bits.

Trials come one after another: each makes a graph by what the tries before it came to, an evaluation
runs it, and a verdict adds what that came to. After the first, which has all layers in eight bits,
and unless that is good enough, a stage ranks the layers. Once nothing is left to try, a
trial leaves the best graph again and a verdict the same history, so that all stages after have run
before on the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from mobileprep.building.plan.running_stages import ValidateStage
from mobileprep.building.plan.spec import PAGE, Files, Stage, Upstream
from mobileprep.recipe.model import ParameterValue
from mobileprep.recipe.settings import Data, InputSpec


class SearchStage(Stage, frozen=True, kw_only=True):
    """What all of them have that quantize the graph.

    Args:
        options: those of ``quantize_nodes`` as the recipe has them.
        graph: the float graph.
        ranges: the range file that the calibration leaves.
        interface: what is fed and fetched.
        regular_expressions: what rules run by, with its version.
    """

    GRAPH: ClassVar[str] = "graph.pb"

    options: Mapping[str, ParameterValue]
    graph: Upstream
    ranges: Upstream
    interface: Upstream
    regular_expressions: str = ""


class RankStage(SearchStage, frozen=True, kw_only=True):
    """Quantizes one layer at a time, and ranks them by what that does to the outputs.

    Args:
        tries: what the first try came to; where that holds, no layer is ranked.
        data: the samples.
        reading: how they are read; None where their content tells.
        samples: how many are run at most.
        inputs: what is fed.
        assets: the files that the graph reads.
    """

    stage_name: ClassVar[str] = "rank"
    stage_version: ClassVar[int] = 3
    RECORD: ClassVar[str] = "ranking.json"

    tries: Upstream
    data: Files
    reading: Data | None = None
    samples: int = 8
    inputs: tuple[InputSpec, ...] = ()
    assets: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


class TrialStage(SearchStage, frozen=True, kw_only=True):
    """Quantizes the graph by the next rules to try; the best again where nothing is left to try.

    Args:
        ranking: the layers, the worst first; None for the first try.
        tries: what the tries before it came to; None for the first.
    """

    stage_name: ClassVar[str] = "trial"
    stage_version: ClassVar[int] = 5
    RECORD: ClassVar[str] = "trial.json"

    ranking: Upstream | None = None
    tries: Upstream | None = None

    @property
    def output_files(self) -> tuple[str, ...]:
        """The graph, and what was tried."""
        return (self.GRAPH, self.RECORD)


class VerdictStage(ValidateStage, frozen=True, kw_only=True):
    """Judges a try as the validation judges what ships, and fails for none of it.

    Args:
        trial: what was tried.
        tries: what the tries before it came to; None for the first.
    """

    stage_name: ClassVar[str] = "verdict"
    stage_version: ClassVar[int] = 1
    RECORD: ClassVar[str] = "tries.json"

    trial: Upstream
    tries: Upstream | None = None


class ChoiceStage(SearchStage, frozen=True, kw_only=True):
    """Quantizes the graph by the best rules that were tried: the step that the recipe asks for.

    Args:
        earlier: the transforms before it, for cautions.
        ranking: the layers, the worst first.
        tries: what all tries came to.
    """

    stage_name: ClassVar[str] = "choice"
    stage_version: ClassVar[int] = 4
    RECORD: ClassVar[str] = "step.json"

    earlier: tuple[str, ...] = ()
    ranking: Upstream
    tries: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The graph, the record of a step, and the page's part."""
        return (self.GRAPH, self.RECORD, PAGE)
