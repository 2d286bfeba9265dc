"""The recipe as later layers see it: frozen dataclasses, every override resolved."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from mobileprep.frozen import dataclass
from mobileprep.options.declare import Option
from mobileprep.options.devices import Device
from mobileprep.options.freeze import Freeze
from mobileprep.recipe.app import Integration, Protection
from mobileprep.recipe.quantize_settings import INTEGER_MODES, Calibration, Quantize
from mobileprep.recipe.settings import (
    ASIDE,
    Abi,
    Artifact,
    Budget,
    Cache,
    Check,
    CustomOp,
    Engine,
    InputFile,
    InputSpec,
    Platform,
    Source,
)
from mobileprep.recipe.tree import Key, MappingNode, Plain, place_of
from mobileprep.recipe.validation_settings import Validation

StepFileKind: TypeAlias = Literal["path", "checkpoint"]
ParameterValue: TypeAlias = str | int | float | bool | tuple[str | int | float | bool, ...]


@dataclass(frozen=True)
class Plugin:
    """A transform from outside the package.

    Args:
        name: the transform's.
        file: the Python file that holds it.
        schema: the JSON Schema of its parameters.
    """

    name: str
    file: InputFile
    schema: InputFile


@dataclass(frozen=True)
class StepFile:
    """A file that a parameter of a transform names.

    Args:
        parameter: the parameter.
        index: which of the parameter's files, where it takes a list; else None.
        kind: ``path`` for one file, ``checkpoint`` for all files of a checkpoint.
        file: the file.
    """

    parameter: str
    index: int | None
    kind: StepFileKind
    file: InputFile


@dataclass(frozen=True)
class Step:
    """One transform of a chain.

    Args:
        name: the transform's.
        params: parameters in the order written, typed as the transform's schema says.
        plugin: where the transform comes from, unless it is one of the package's.
        files: those that the parameters name; what they hold decides results, and not this.
        place: where the step is written, ``file:line:column``.
        note: what the user should know of how it is written, or an empty text.
        takes_ranges: whether it is given the ranges that the target's calibration finds.
        trials: how many rules for its layers are tried at most, for those that the validation's
            limits allow; 0 where it is done as it is written.
    """

    name: str
    params: tuple[tuple[str, ParameterValue], ...] = ()
    plugin: Plugin | None = None
    files: tuple[StepFile, ...] = field(default=(), compare=False, metadata=ASIDE)
    place: str = field(default="", compare=False, metadata=ASIDE)
    note: str = field(default="", compare=False, metadata=ASIDE)
    takes_ranges: bool = False
    trials: int = 0

    @property
    def options(self) -> dict[str, ParameterValue]:
        """The transform's own parameters."""
        return {key: value for key, value in self.params if key != "ignore_errors"}

    @property
    def ignore_errors(self) -> bool:
        """Whether a failure leaves the graph as it was instead of ending the build."""
        return dict(self.params).get("ignore_errors", False) is True


@dataclass(frozen=True)
class Target:
    """One device and the whole of what is done for it.

    Args:
        name: the target's.
        folder: of its outputs, below the recipe's: the name, or ``model/name``.
        model: the model's name where the recipe has several, else None.
        source: what to start from.
        freeze: how to freeze it.
        inputs: what is fed; empty where the recipe names none.
        outputs: what is fetched; empty where the recipe names none.
        transforms: the whole chain: shared or own, ``then``, quantize, obfuscate and sort.
        check: how to run the model after each transform and compare, or None.
        calibration: how the ranges are measured that a step of the chain takes, or None.
        validation: how to check the result, or None.
        quantize: what ``transforms`` does to constants.
        registration: the TensorFlow versions to write ``ops_to_register.h`` for.
        allow: the ops that may ship although one of those versions lacks them.
        ops: the ops that the app registers itself.
        integration: the code by which an app runs the model, or None.
        protect: what makes the model harder to take out of the app.
        budget: limits.
        device: what a latency goes by, or None.
        device_file: the profile of the device, where it is a file.
    """

    name: str
    folder: str
    model: str | None
    source: Source
    freeze: Freeze = field(default_factory=Freeze)
    inputs: tuple[InputSpec, ...] = ()
    outputs: tuple[str, ...] = ()
    transforms: tuple[Step, ...] = ()
    check: Check | None = None
    calibration: Calibration | None = None
    engine: Annotated[
        Engine,
        Option(
            "What runs the model for `calibration`, `check`, and `validation`: the interpreter "
            "(`numpy`), which is always installed, `openvino`, `tensorflow`, or the fastest "
            "installed one that agrees with the interpreter on two samples (`auto`). The report "
            "names the engine. Calibrated ranges can differ in their last digits between engines."
        ),
    ] = "numpy"
    validation: Validation | None = None
    quantization_report: Annotated[
        bool | None,
        Option(
            "Whether the report tells how far quantizing takes each tensor from float, on 16 "
            "samples of the validation, or of the calibration without one. Without it, that is "
            "told of `quantize_nodes`; with `true`, of what only makes weights smaller as well."
        ),
    ] = None
    migration_report: Annotated[
        bool,
        Option(
            "Whether the report tells whether TensorFlow Mobile 1.15 and LiteRT run the graph, "
            "what each lacks, what to cut off or to feed instead, and the sizes, as "
            "`mobileprep migrate` does. It is the graph before `quantize_weights` and "
            "`quantize_nodes`, which are for TensorFlow's kernels alone. Not with "
            "`artifact: tflite`, which is for LiteRT already."
        ),
    ] = False
    platform: Annotated[Platform, Option("What the target runs.")] = "generic"
    abis: Annotated[
        tuple[Abi, ...],
        Option(
            "The binary interfaces to build TensorFlow for, of those that the platform has: of "
            "`android` the first four, of `ios` `arm64` and `x86_64` (the simulator), of "
            "`raspberry-pi` `armhf` and `aarch64`. Without them, all.",
            min_items=1,
            unique=True,
        ),
    ] = ()
    quantize: Quantize = field(default_factory=Quantize)
    artifact: Annotated[
        Artifact,
        Option(
            "The form of the model that ships: a binary GraphDef (`frozen`), a text one (`text`), "
            "a file whose constants of 4,096 bytes and more the app maps into memory "
            "(`memmapped`), or a file for LiteRT (`tflite`)."
        ),
    ] = "frozen"
    flex: Annotated[
        bool,
        Option(
            "With `artifact: tflite`, whether ops that LiteRT cannot express are left to the Flex "
            "delegate (Select TensorFlow ops), which the app has to link then."
        ),
    ] = False
    registration: tuple[str, ...] = ("1.15",)
    allow: tuple[str, ...] = ()
    ops: tuple[CustomOp, ...] = ()
    min_runtime: str = ""
    integration: Integration | None = None
    protect: Protection = field(default_factory=Protection)
    budget: Budget = field(default_factory=Budget)
    device: Device | None = None
    device_file: InputFile | None = field(default=None, compare=False, metadata=ASIDE)
    tree: MappingNode | None = field(default=None, repr=False, compare=False, metadata=ASIDE)

    @property
    def ranges_of_file(self) -> bool:
        """Whether the file for LiteRT computes in integers by ranges that are measured."""
        computes = self.artifact == "tflite" and self.quantize.mode in INTEGER_MODES
        return computes and self.calibration is not None

    @property
    def takes_ranges(self) -> bool:
        """Whether the target's calibration measures anything."""
        by_step = self.calibration is not None and any(s.takes_ranges for s in self.transforms)
        return by_step or self.ranges_of_file

    def place(self, keys: Iterable[Key] = ()) -> str:
        """``file:line:column`` of a key path such as ``("outputs", 0)``, or of the nearest above.

        The path starts at the target's sections, overrides applied.
        """
        return str(place_of(self.tree, keys)) if self.tree is not None else ""


@dataclass(frozen=True)
class Recipe:
    """A recipe, ready to plan.

    Args:
        version: of the format.
        name: the recipe's, and its output folder's.
        file: the recipe's path as it was given.
        targets: in the order written, model by model.
        variables: the names that ``${NAME}`` references use, sorted.
        cache: the remote store, or None.
        memory: the bytes that runs of the model may take together; None leaves it to the machine.
        files: what it was read from, its own file and those that it extends.
    """

    version: int
    name: str
    file: str = field(metadata=ASIDE)
    targets: tuple[Target, ...]
    variables: tuple[str, ...] = field(default=(), metadata=ASIDE)
    cache: Cache | None = field(default=None, compare=False, metadata=ASIDE)
    memory: Annotated[
        int | None,
        Option(
            "What the tensors of all runs of the model may take together, such as `4 GB`. It "
            "decides no result: what does not fit fails. Without it, half of the machine's memory. "
            "`--memory` and the environment's `MOBILEPREP_MEMORY` go before it.",
            definition="size",
        ),
    ] = field(default=None, compare=False, metadata=ASIDE)
    files: tuple[Path, ...] = field(default=(), repr=False, compare=False, metadata=ASIDE)
    tree: MappingNode | None = field(default=None, repr=False, compare=False, metadata=ASIDE)

    def place(self, keys: Iterable[Key] = ()) -> str:
        """``file:line:column`` of a key path such as ``("targets", "phone")``."""
        return str(place_of(self.tree, keys)) if self.tree is not None else self.file

    def chosen(self, names: Collection[str]) -> tuple[Target, ...]:
        """The targets that are meant by names, their own or of their folders; all without any."""
        return tuple(t for t in self.targets if not names or t.name in names or t.folder in names)


def digestible(value: object) -> Plain:
    """What of a model object decides results, as JSON can hold it: no paths, no places."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: digestible(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if not f.metadata.get("aside")
        }
    if isinstance(value, tuple):
        return [digestible(item) for item in value]
    return value
