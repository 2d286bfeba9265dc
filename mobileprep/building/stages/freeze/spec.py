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
    """What was frozen, ``freeze.json``.

    Args:
        nodes: of the graph, functions' bodies included.
        parameters: elements of all constants together.
        constants: how many Const nodes.
        bytes: the length of the serialized graph.
        ops: how many nodes of each op.
        variables: how many became constants.
        warnings: what the user should know.
        init_ops: ops that the app runs once after loading.
        assets: the files that ship with the model, by the tensor that names each.
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
    """A trained model to a graph without variables, cut down to its outputs.

    Args:
        kind: what ``graph`` is.
        graph: the model.
        checkpoint: the variables' values.
        saver: a SaverDef that names the op by which the graph restores.
        assets: files that the graph reads, found by their names.
        tags: of the MetaGraph to take from a SavedModel.
        signature: whose inputs and outputs are meant.
        freeze: how variables become constants.
        inputs: what is fed.
        outputs: what is fetched.
        regular_expressions: what variables' initializers may run them by, with its version.
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
        """The graph, its interface, the files that it reads, the record, and the page's part."""
        return (GRAPH, INTERFACE, ASSETS, self.RECORD, PAGE)


class Interface(Struct, frozen=True):
    """A model's interface, ``interface.json``: the tensors that the app feeds and fetches.

    Args:
        inputs: names of tensors, signatures resolved.
        outputs: the same.
        init_ops: ops that the app runs once after loading; they fill lookup tables.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    init_ops: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[str, ...]:
        """What transforms must keep: the outputs, and the ops that the app runs first."""
        return (*self.outputs, *self.init_ops)


class Frozen(Struct, frozen=True):
    """What a freeze stage leaves for the stages that run a graph."""

    graph: Upstream
    interface: Upstream
    assets: Upstream


def frozen_by(task: str) -> Frozen:
    """What the freeze stage of that task leaves."""
    return Frozen(Upstream(task, GRAPH), Upstream(task, INTERFACE), Upstream(task, ASSETS))


def freeze_spec(target: Target) -> StageSpec:
    """The stage that freezes a target's source."""
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
        # What is frozen already has no variables, and so no initializers.
        regular_expressions="" if source.kind == "frozen" else regex_engine(),
    )
    return StageSpec("freeze", stage, places(target, "source", "freeze", "inputs", "outputs"))
