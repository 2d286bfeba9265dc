"""The stage `cut_decoder`: its parameters, inputs, outputs, and record."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from mobileprep.building.plan.spec import Stage, StageSpec, Upstream, places
from mobileprep.building.stages.freeze.spec import GRAPH, INTERFACE, Frozen
from mobileprep.recipe.model import Target
from mobileprep.targets.integration.ctc import Decoding


class DecodingRecord(Struct, frozen=True):
    """The decoder that the app runs behind the model, ``decoding.json``.

    Args:
        decoding: the decoder.
        summary: the same in one line.
        nodes: number of nodes that the cut removed.
    """

    decoding: Decoding
    summary: str
    nodes: int


class CutDecoderStage(Stage, frozen=True, kw_only=True):
    """Replace the outputs of a CTC decoder with its logits.

    Args:
        graph: the graph.
        interface: its inputs and outputs.
    """

    stage_name: ClassVar[str] = "cut_decoder"
    stage_version: ClassVar[int] = 1
    RECORD: ClassVar[str] = "decoding.json"
    reported: ClassVar[type[Struct] | None] = DecodingRecord

    graph: Upstream
    interface: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The cut graph, its interface, and the record."""
        return (GRAPH, INTERFACE, self.RECORD)


def cut_decoder_spec(target: Target, frozen: Frozen) -> StageSpec | None:
    """Return the stage that cuts the decoder, if the recipe asks for it."""
    if target.decoding != "cut":
        return None
    stage = CutDecoderStage(graph=frozen.graph, interface=frozen.interface)
    return StageSpec("cut_decoder", stage, places(target, "decoding", "outputs"))


def decoding_line(record: DecodingRecord) -> str:
    """Return the decoder in one line."""
    return f"decoding: {record.summary}"
