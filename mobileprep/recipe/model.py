"""The typed recipe, with all overrides resolved."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias

from msgspec import Struct, field, structs

from mobileprep.core.declare import Located, Option
from mobileprep.freezing.settings import Freeze
from mobileprep.recipe.pipeline_settings import Pipeline
from mobileprep.recipe.preprocessing import StatedPreprocessing
from mobileprep.recipe.settings import (
    Abi,
    Artifact,
    Budget,
    Cache,
    Check,
    CustomOp,
    Download,
    Engine,
    InputFile,
    InputSpec,
    Platform,
    Source,
    Streaming,
)
from mobileprep.recipe.tree import (
    Key,
    KeyPath,
    MappingNode,
    Plain,
    place_of,
)
from mobileprep.recipe.validation_settings import (
    INTEGER_MODES,
    Calibration,
    NamedValidation,
    Quantize,
    Validation,
)
from mobileprep.targets.measurements import Measurement
from mobileprep.targets.targets import Device

Language: TypeAlias = Literal["java", "kotlin", "cpp", "objc", "swift"]


class Integration(Struct, frozen=True):
    """The code with which an app runs the model."""

    languages: Annotated[
        tuple[Language, ...],
        Option(
            "The languages: `java` and `kotlin` for TensorFlowInferenceInterface, `cpp` for the "
            "Session API, `objc` for Objective-C++ that calls the C++. With `artifact: tflite` "
            "`java`, `kotlin`, `swift` and `cpp` for LiteRT's Interpreter. Required.",
            min_items=1,
            unique=True,
        ),
    ] = ()
    package: Annotated[
        str, Option("The package of Java and Kotlin, the namespace of C++.", definition="package")
    ] = "mobileprep.model"
    class_name: Annotated[str, Option("The name of the class.", definition="class_name")] = (
        "PreparedModel"
    )
    threads: Annotated[
        int | None,
        Option(
            "Number of threads that compute an op: TensorFlow's intra-op threads in C++ and "
            "Objective-C++, where ops then run one at a time (one inter-op thread), and LiteRT's "
            "threads in all languages. Without it, the runtime decides, as "
            "TensorFlowInferenceInterface always does.",
            minimum=1,
            maximum=256,
        ),
    ] = None
    labels: Annotated[
        InputFile | None,
        Option(
            "File of class names, one per line, in the order of the output. The build checks their "
            "number, writes them next to the model, and the code gets a function that finds the "
            "highest scores. Default: the `classes` of the samples, without that function.",
            definition="path",
        ),
    ] = None


class Protection(Struct, frozen=True):
    """Measures that make it harder to extract a model from an app.

    Args:
        key: environment variable with the encryption key, or None.
    """

    obfuscate: Annotated[
        bool, Option("Replace the names of nodes by short ones, as the target's `obfuscate` does.")
    ] = False
    key: str | None = None


StepFileKind: TypeAlias = Literal["path", "checkpoint"]
ParameterValue: TypeAlias = str | int | float | bool | tuple[str | int | float | bool, ...]


class Plugin(Struct, frozen=True):
    """A transform from outside the package.

    Args:
        name: name of the transform.
        file: Python file of the transform.
        schema: JSON Schema of its parameters.
    """

    name: str
    file: InputFile
    schema: InputFile


class StepFile(Struct, frozen=True):
    """A file that a parameter of a transform names.

    Args:
        parameter: name of the parameter.
        index: index of the file if the parameter is a list, otherwise None.
        kind: ``path`` for one file, ``checkpoint`` for all files of a checkpoint.
        file: the file.
    """

    parameter: str
    index: int | None
    kind: StepFileKind
    file: InputFile


class Step(Located, frozen=True):
    """One transform of a chain.

    Args:
        name: name of the transform.
        params: parameters in the order written, with the types of the transform's schema.
        plugin: source of the transform, or None if it is part of the package.
        files: files that the parameters name. Their contents affect results, not these fields.
        place: location of the step, ``file:line:column``.
        note: warning about how the step is written, or an empty string.
        takes_ranges: whether the step uses the ranges of the target's calibration.
        is_repair: whether the step is one of ``quantize.repair``.
        trials: maximum number of layer rules to try within the limits of the validation; 0 to run
            the step as written.
    """

    name: str
    params: tuple[tuple[str, ParameterValue], ...] = ()
    plugin: Plugin | None = None
    files: tuple[StepFile, ...] = ()
    place: str = ""
    note: str = ""
    aside: ClassVar[frozenset[str]] = frozenset({"files", "place", "note", "is_repair"})
    takes_ranges: bool = False
    trials: int = 0
    is_repair: bool = False

    @property
    def options(self) -> dict[str, ParameterValue]:
        """Parameters of the transform, without ``ignore_errors``."""
        return {key: value for key, value in self.params if key != "ignore_errors"}

    @property
    def ignore_errors(self) -> bool:
        """Whether a failure keeps the previous graph instead of ending the build."""
        return dict(self.params).get("ignore_errors", False) is True


class Target(Located, frozen=True):
    """A device, and the preparation of the model for it.

    Args:
        name: name of the target.
        folder: output directory, relative to that of the recipe: the name, or ``model/name``.
        model: name of the model if the recipe has several, otherwise None.
        source: the trained model.
        freeze: how to freeze it.
        inputs: tensors that the app feeds; empty if the recipe does not name them.
        outputs: tensors that the app fetches; empty if the recipe does not name them.
        transforms: the whole chain: shared or own, ``then``, quantize, obfuscate, and sort.
        check: how to run and compare the model after each transform, or None.
        calibration: how to measure the ranges that a step of the chain uses, or None.
        validations: how to check the result: one validation, or one for each named data set.
        quantize: what ``transforms`` does to constants.
        registration: TensorFlow versions for which to write ``ops_to_register.h``.
        allow: ops that may ship although one of these versions does not have them.
        ops: ops that the app registers itself.
        streaming: how a .tflite file runs a stream, or None for whole sequences.
        integration: the code with which an app runs the model, or None.
        protect: measures that make it harder to extract the model from the app.
        download: the installed model that the target updates, or None.
        budget: limits.
        pipeline: the pipeline that the target's device runs, or None.
        device: device for latency estimates, or None.
        device_file: profile of the device if it is a file, otherwise None.
        measurement: measurement of the published model on a device, or None.
        measurement_file: file of the measurement, or None.
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
            "Engine that runs the model for `calibration`, `check`, and `validation`: the "
            "interpreter (`numpy`), `openvino`, `litert`, `tensorflow`, or the fastest installed "
            "one that agrees with the interpreter on two samples (`auto`). The report names the "
            "engine. Calibrated ranges can differ in their last digits between engines."
        ),
    ] = "numpy"
    validations: tuple[Validation, ...] = ()
    quantization_report: Annotated[
        bool | None,
        Option(
            "Whether the report compares each quantized tensor with float, on 16 samples of the "
            "validation or the calibration. Default: only with `quantize_nodes`; `true` includes "
            "transforms that only quantize weights. For `int8`, `int16x8`, `int4`, and `weights` "
            "with `artifact: tflite`, `true` measures each layer on 4 samples, before and after "
            "each repair."
        ),
    ] = None
    migration_report: Annotated[
        bool,
        Option(
            "Whether the report says if TensorFlow Mobile 1.15 and LiteRT can run the graph, and "
            "what to change, as `mobileprep migrate` does. It checks the graph before "
            "`quantize_weights` and `quantize_nodes`. Not with `artifact: tflite`."
        ),
    ] = False
    preprocessing: Literal["cut", "keep"] | StatedPreprocessing = "keep"
    decoding: Annotated[
        Literal["cut", "keep"],
        Option(
            "`cut` moves the CTC decoder at the end of the graph (`CTCGreedyDecoder` or "
            "`CTCBeamSearchDecoder`) into the app: its logits become an output, and the code of "
            "`integration` decodes them as TensorFlow does. `keep` leaves it in the graph."
        ),
    ] = "keep"
    platform: Annotated[Platform, Option("Platform of the target.")] = "generic"
    abis: Annotated[
        tuple[Abi, ...],
        Option(
            "Binary interfaces to build TensorFlow for: the first four for `android`, `arm64` and"
            " `x86_64` (simulator) for `ios`, `armhf` and `aarch64` for `raspberry-pi`. Default: "
            "all.",
            min_items=1,
            unique=True,
        ),
    ] = ()
    quantize: Quantize = field(default_factory=Quantize)
    artifact: Annotated[
        Artifact,
        Option(
            "Format of the model: a binary GraphDef (`frozen`), a text GraphDef (`text`), a file "
            "with memory-mapped constants of at least 4,096 bytes (`memmapped`), or a LiteRT file"
            " (`tflite`)."
        ),
    ] = "frozen"
    flex: Annotated[
        bool,
        Option(
            "With `artifact: tflite`, whether ops without a LiteRT operator are kept for the Flex"
            " delegate (Select TensorFlow ops), which the app must link."
        ),
    ] = False
    registration: tuple[str, ...] = ("1.15",)
    allow: tuple[str, ...] = ()
    ops: tuple[CustomOp, ...] = ()
    min_runtime: str = ""
    streaming: Streaming | None = None
    integration: Integration | None = None
    protect: Protection = field(default_factory=Protection)
    download: Download | None = None
    budget: Budget = field(default_factory=Budget)
    pipeline: Pipeline | None = None
    device: Device | None = None
    device_file: InputFile | None = None
    measurement: Measurement | None = None
    measurement_file: InputFile | None = None
    tree: MappingNode | None = None
    aside: ClassVar[frozenset[str]] = frozenset({"device_file", "measurement_file", "tree"})

    @property
    def validation(self) -> Validation | None:
        """The validation that sections without data of their own use: the first, or None."""
        return self.validations[0] if self.validations else None

    def validation_keys(self, validation: Validation) -> KeyPath:
        """Return the key path of one of the validations."""
        if not isinstance(validation, NamedValidation):
            return ("validation",)
        return ("validation", self.validations.index(validation))

    @property
    def ranges_of_file(self) -> bool:
        """Whether the LiteRT file computes in integers with calibrated ranges."""
        computes = self.artifact == "tflite" and self.quantize.mode in INTEGER_MODES
        return (computes or self.searches_exceptions) and self.calibration is not None

    @property
    def searches_exceptions(self) -> bool:
        """Whether ``quantize: auto`` searches for exceptions of an integer LiteRT file."""
        return self.artifact == "tflite" and self.quantize.mode == "auto"

    @property
    def takes_ranges(self) -> bool:
        """Whether the target needs the ranges of its calibration."""
        by_step = self.calibration is not None and any(s.takes_ranges for s in self.transforms)
        return by_step or self.ranges_of_file

    def place(self, keys: Iterable[Key] = ()) -> str:
        """Return ``file:line:column`` of a key path such as ``("outputs", 0)``.

        The path starts at the sections of the target, with overrides applied. If it does not exist,
        the location is that of the nearest parent.
        """
        return str(place_of(self.tree, keys)) if self.tree is not None else ""


class Recipe(Located, frozen=True):
    """A recipe, ready to plan.

    Args:
        version: version of the format.
        name: name of the recipe and of its output directory.
        file: path of the recipe, as passed by the caller.
        targets: targets in the order written, model by model.
        variables: names that ``${NAME}`` references use, sorted.
        cache: the remote cache, or None.
        memory: maximum bytes of all concurrent runs of the model; None for a limit that depends on
            the machine.
        plugins: the transforms in files that the recipe names.
        files: the recipe file and those that it extends.
    """

    version: int
    name: str
    file: str
    targets: tuple[Target, ...]
    variables: tuple[str, ...] = ()
    cache: Cache | None = None
    memory: Annotated[
        int | None,
        Option(
            "Memory limit for the tensors of all runs of the model, such as `4 GB`. Default: half"
            " of the machine's memory. `--memory` and `MOBILEPREP_MEMORY` override it.",
            definition="size",
        ),
    ] = None
    plugins: tuple[Plugin, ...] = ()
    files: tuple[Path, ...] = ()
    tree: MappingNode | None = None
    aside: ClassVar[frozenset[str]] = frozenset(
        {"file", "variables", "cache", "memory", "plugins", "files", "tree"}
    )

    def place(self, keys: Iterable[Key] = ()) -> str:
        """Return ``file:line:column`` of a key path such as ``("targets", "phone")``."""
        return str(place_of(self.tree, keys)) if self.tree is not None else self.file

    def chosen(self, names: Collection[str]) -> tuple[Target, ...]:
        """Return the targets with these names or directories; all if there are none."""
        return tuple(t for t in self.targets if not names or t.name in names or t.folder in names)


def digestible(value: object) -> Plain:
    """Return the part of a model object that affects results as JSON, without paths."""
    if isinstance(value, Located):
        return {key: digestible(item) for key, item in value.essentials().items()}
    if isinstance(value, Struct):
        return {key: digestible(item) for key, item in structs.asdict(value).items()}
    if isinstance(value, tuple):
        return [digestible(item) for item in value]
    return value
