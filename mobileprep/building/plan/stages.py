"""The kinds of stages: what each is told and reads, what it leaves, and its version.

The planner makes these, and the modules in ``stages/`` work by them. Whenever a stage's outputs
change for the same inputs, its version here is raised by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from msgspec import field

from mobileprep.building.plan.app_stages import EncryptStage, IntegrationStage, MigrationStage
from mobileprep.building.plan.running_stages import (
    CalibrateStage,
    CheckStage,
    DamageStage,
    DefaultCheckStage,
    EvaluateStage,
    SamplesStage,
    ValidateStage,
)
from mobileprep.building.plan.search_stages import ChoiceStage, RankStage, TrialStage, VerdictStage
from mobileprep.building.plan.spec import PAGE, PUBLISHED, Files, Stage, Upstream
from mobileprep.data.options import Reading
from mobileprep.freezing.settings import Freeze
from mobileprep.recipe.model import ParameterValue
from mobileprep.recipe.settings import Artifact, Budget, InputSpec, Platform, SourceKind
from mobileprep.recipe.validation_settings import Quantize
from mobileprep.targets.targets import Device

GRAPH: Final = "graph.pb"
INTERFACE: Final = "interface.json"
ASSETS: Final = "assets.npz"
HEADER: Final = "ops_to_register.h"
OP_SOURCES: Final = "custom_ops/"
"""The directory of a target that gets the C++ files of the app's own ops."""
_FRAGMENTS: Final = ("selective_registration.bazelrc", "selective_registration.bzl")
# By TensorFlow version: the header, and the build fragments that go with it.
_REGISTRATION: Final = {
    "1.15": (HEADER, *_FRAGMENTS, "selective_registration.mk", "tf_op_files.txt"),
    "2.21": (HEADER, *_FRAGMENTS),
}
# By platform: what the app's own build takes to link TensorFlow 1.15.
_APP: Final = {
    "android": ("app.gradle", "app.mk"),
    "ios": ("app.xcconfig", "{}.podspec"),
    "raspberry-pi": ("app.mk",),
    "linux": ("app.mk",),
}


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


class TransformStage(Stage, frozen=True, kw_only=True):
    """One step of a chain, from graph to graph.

    Args:
        transform: its name.
        options: its parameters; those that name files have them as the recipe does.
        ignore_errors: whether a failure leaves the graph as it was.
        earlier: the transforms before it, for cautions.
        plugin: the code of a transform from outside the package.
        named: the files that parameters name, by ``file_slot``.
        graph: the graph before it.
        ranges: the range file that a calibration leaves for it, its option ``range_file``.
        interface: what is fed and fetched.
        regular_expressions: what the transform may run them by, with its version.
    """

    stage_name: ClassVar[str] = "transform"
    stage_version: ClassVar[int] = 13
    RECORD: ClassVar[str] = "step.json"

    transform: str
    options: Mapping[str, ParameterValue]
    ignore_errors: bool = False
    earlier: tuple[str, ...] = ()
    plugin: Files | None = None
    named: Mapping[str, Files]
    graph: Upstream
    ranges: Upstream | None = None
    interface: Upstream
    regular_expressions: str = ""

    @property
    def output_files(self) -> tuple[str, ...]:
        """The graph after it, the record, and the page's part."""
        return (GRAPH, self.RECORD, PAGE)


class PackageStage(Stage, frozen=True, kw_only=True):
    """The files that an app takes.

    Args:
        file: the name of the model file.
        artifact: its form.
        flex: whether a file for LiteRT may leave ops to the Flex delegate.
        min_runtime: the oldest release that has to run a file for LiteRT; empty for any.
        encrypted: the name of the file that ships in its place; empty where it ships itself.
        platform: what the target runs.
        abis: the binary interfaces to build for; all where there are none.
        registration: the TensorFlow versions to write headers for.
        allow: the ops that may ship although one of those versions lacks them.
        ops: the kernel classes of the ops that the app registers itself, by op.
        op_sources: the C++ files of those ops.
        inputs: what is fed, as far as the recipe says; of a file for LiteRT, as the next three.
        reading: how pictures become values of ``picture_input``, or None.
        picture_input: the input that gets pictures; None for the only one.
        classes: the file that lists the classes.
        graph: the graph after all transforms.
        interface: what is fed and fetched.
        assets: for LiteRT, the files that the graph reads.
        quantize: for LiteRT, what is done to weights and activations.
        ranges: by which it computes in integers, as far as they are measured.
        regular_expressions: what its rules are looked for by, with its version.
    """

    stage_name: ClassVar[str] = "package"
    stage_version: ClassVar[int] = 16
    RECORD: ClassVar[str] = "package.json"

    file: str
    artifact: Artifact
    flex: bool = False
    min_runtime: str = ""
    encrypted: str = ""
    platform: Platform
    abis: tuple[str, ...] = ()
    registration: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    ops: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    op_sources: Mapping[str, Files] = field(default_factory=dict)
    inputs: tuple[InputSpec, ...] = ()
    reading: Reading | None = None
    picture_input: str | None = None
    classes: Files | None = None
    graph: Upstream
    interface: Upstream
    assets: Upstream | None = None
    quantize: Quantize = field(default_factory=Quantize)
    ranges: Upstream | None = None
    regular_expressions: str = ""

    @property
    def model(self) -> str:
        """The output that is the model."""
        return self.file if self.encrypted else f"{PUBLISHED}{self.file}"

    @property
    def output_files(self) -> tuple[str, ...]:
        """The model, headers, build fragments, what the app's build takes, and the record."""
        registration = (
            f"{PUBLISHED}{self.registration_folder(release)}{name}"
            for release in self.registration
            for name in _REGISTRATION.get(release, ())
        )
        app = (f"{PUBLISHED}{name.format(self.name)}" for name in self._app_files)
        sources = (f"{PUBLISHED}{OP_SOURCES}{file.root.name}" for file in self.op_sources.values())
        return (self.model, *registration, *app, *sources, self.RECORD)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.file.rpartition(".")[0]

    @property
    def _app_files(self) -> tuple[str, ...]:
        return _APP.get(self.platform, ()) if "1.15" in self.registration else ()

    def registration_folder(self, release: str) -> str:
        """Where the header for a release lies: with several, each has a folder."""
        return "" if len(self.registration) == 1 else f"tensorflow-{release}/"


class CompressStage(Stage, frozen=True, kw_only=True):
    """Measures a model file as app packages store it, compressed.

    Args:
        compressor: what compresses, with its version and level.
        graph: the graph that the file holds, where it holds nothing else; measuring then need not
            wait for the file.
        model: the model file, where there is no such graph.
    """

    stage_name: ClassVar[str] = "compress"
    stage_version: ClassVar[int] = 3
    RECORD: ClassVar[str] = "compress.json"

    compressor: str
    graph: Upstream | None = None
    model: Upstream | None = None

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


class BudgetStage(Stage, frozen=True, kw_only=True):
    """Compare a model with the target's limits, and estimate its cost on the target's device.

    Args:
        budget: the limits.
        device: the device of a latency and of the cost.
        inputs: what is fed, with the shapes that the recipe declares.
        package: the record of what ships.
        compressed: the record of its compressed size.
        graph: the graph that ships.
        interface: what is fed and fetched.
        assets: the files that it reads.
    """

    stage_name: ClassVar[str] = "budget"
    stage_version: ClassVar[int] = 5
    RECORD: ClassVar[str] = "budget.json"

    budget: Budget
    device: Device | None = None
    inputs: tuple[InputSpec, ...] = ()
    package: Upstream
    compressed: Upstream
    graph: Upstream
    interface: Upstream
    assets: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


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


STAGES: Final[tuple[type[Stage], ...]] = (
    FreezeStage,
    TransformStage,
    SamplesStage,
    CheckStage,
    DefaultCheckStage,
    CalibrateStage,
    DamageStage,
    PackageStage,
    EncryptStage,
    IntegrationStage,
    MigrationStage,
    CompressStage,
    BudgetStage,
    NodesStage,
    EvaluateStage,
    ValidateStage,
    RankStage,
    TrialStage,
    VerdictStage,
    ChoiceStage,
)
"""Every kind of stage there is."""
