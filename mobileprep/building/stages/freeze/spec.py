"""The stage `freeze`: its parameters, inputs, outputs, and record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from msgspec import Struct

from mobileprep.building.plan.engines import regex_engine
from mobileprep.building.plan.sources import (
    file_or_folder,
    graph_files,
    single_file,
    source_checkpoint,
)
from mobileprep.building.plan.spec import PAGE, Files, Stage, StageSpec, Upstream, places
from mobileprep.freezing.settings import Freeze
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import InputSpec, SourceKind

GRAPH: Final = "graph.pb"


INTERFACE: Final = "interface.json"


ASSETS: Final = "assets.npz"


class FreezeRecord(Struct, frozen=True):
    """Facts about a frozen graph, ``freeze.json``.

    Args:
        nodes: number of nodes of the graph, including function bodies.
        parameters: number of elements of all constants.
        constants: number of Const nodes.
        bytes: size of the serialized graph in bytes.
        ops: number of nodes of each op.
        variables: number of variables that became constants.
        warnings: warnings for the user.
        init_ops: ops that the app runs once after loading.
        assets: files to ship with the model, by the tensor that names each.
    """

    nodes: int
    parameters: int
    constants: int
    bytes: int
    ops: Mapping[str, int]
    variables: int
    warnings: tuple[str, ...]
    init_ops: tuple[str, ...]
    assets: Mapping[str, str]


class FreezeStage(Stage, frozen=True, kw_only=True):
    """Convert a trained model to a graph without variables, pruned to its outputs.

    Args:
        kind: format of ``graph``.
        graph: the model.
        checkpoint: values of the variables.
        saver: a SaverDef that names the graph's restore op.
        assets: files that the graph reads, found by name.
        tags: tags of the MetaGraph to use from a SavedModel.
        signature: signature that defines the inputs and outputs.
        freeze: settings for converting variables to constants.
        inputs: the inputs.
        outputs: the outputs.
        regular_expressions: regular expression engine for the variables' initializers, with its
            version.
    """

    stage_name: ClassVar[str] = "freeze"
    stage_version: ClassVar[int] = 10
    RECORD: ClassVar[str] = "freeze.json"
    reported: ClassVar[type[Struct] | None] = FreezeRecord

    kind: SourceKind
    graph: Files
    checkpoint: Files | None = None
    saver: Files | None = None
    assets: Files | None = None
    tags: tuple[str, ...] = ()
    signature: str | None = None
    freeze: Freeze
    inputs: tuple[InputSpec, ...] = ()
    outputs: tuple[str, ...] = ()
    regular_expressions: str = ""

    @property
    def output_files(self) -> tuple[str, ...]:
        """The graph, its interface, its assets, the record, and the data for the report page."""
        return (GRAPH, INTERFACE, ASSETS, self.RECORD, PAGE)


class Interface(Struct, frozen=True):
    """Interface of a model, ``interface.json``: the tensors that the app feeds and fetches.

    Args:
        inputs: names of tensors, with signatures resolved.
        outputs: names of tensors, with signatures resolved.
        init_ops: ops that the app runs once after loading; they fill lookup tables.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    init_ops: tuple[str, ...] = ()

    @property
    def retained(self) -> tuple[str, ...]:
        """Names that transforms must keep: the outputs and the init ops."""
        return (*self.outputs, *self.init_ops)


class Frozen(Struct, frozen=True):
    """Outputs of a freeze stage that other stages need to run a graph."""

    graph: Upstream
    interface: Upstream
    assets: Upstream


def frozen_by(task: str) -> Frozen:
    """Return the outputs of a freeze stage."""
    return Frozen(Upstream(task, GRAPH), Upstream(task, INTERFACE), Upstream(task, ASSETS))


def freeze_spec(target: Target) -> StageSpec:
    """Return the stage that freezes a target's source."""
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
        # A frozen graph has no variables, and therefore no initializers.
        regular_expressions="" if source.kind == "frozen" else regex_engine(),
    )
    return StageSpec("freeze", stage, places(target, "source", "freeze", "inputs", "outputs"))
