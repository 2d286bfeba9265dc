"""The recipe as frozen dataclasses, with all overrides resolved."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import Struct, field, structs

from mobileprep.core.declare import Located, Option
from mobileprep.freezing.settings import Freeze
from mobileprep.recipe.sections import TargetSections
from mobileprep.recipe.settings import (
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
from mobileprep.recipe.tree import (
    Key,
    MappingNode,
    Node,
    Place,
    Plain,
    Problem,
    Scalar,
    Sequence,
    SourceText,
    place_of,
    plain,
)
from mobileprep.recipe.validation_settings import INTEGER_MODES, Calibration, Quantize, Validation
from mobileprep.targets.targets import Device

Language: TypeAlias = Literal["java", "kotlin", "cpp", "objc", "swift"]

# Keywords of Java, Kotlin, and C++ that could occur as part of a package or namespace.
_KEYWORDS: Final = """
abstract alignas alignof and as asm assert auto bitand bitor bool boolean break byte case catch
char class compl const constexpr continue decltype default delete do double else enum explicit
export extends extern false final finally float for friend fun goto if implements import in
inline instanceof int interface is long mutable namespace native new noexcept not null nullptr
object operator or package private protected public register return short signed sizeof static
std strictfp struct super switch synchronized template tensorflow this throw throws transient
true try typealias typedef typeid typename typeof union unsigned using val var virtual void
volatile wchar_t when while xor
"""
# Types that the generated code uses by their short names.
_TYPES: Final = """
AssetManager AutoCloseable Boolean BufferedReader Byte Charsets Closeable Double EncryptedModel
Exception Float Int Integer List Long Math Model ArrayList IOException IllegalArgumentException
InputStreamReader
Object Override StandardCharsets String TensorFlowInferenceInterface BooleanArray ByteArray
DoubleArray FloatArray IntArray LongArray
"""
_ENVIRONMENT: Final = "env:"
_NAMED_KEY: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]{0,199}\Z")
_OF_ANDROID: Final = ("java", "kotlin")


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
    ]
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


class Protection(Struct, frozen=True):
    """Measures that make it harder to extract a model from an app.

    Args:
        key: environment variable with the encryption key, or None.
    """

    obfuscate: Annotated[
        bool, Option("Replace the names of nodes by short ones, as the target's `obfuscate` does.")
    ] = False
    key: str | None = None


def protection_of(section: MappingNode | None) -> Protection:
    """Return the protection that a valid section describes."""
    if section is None:
        return Protection()
    encrypt = section.get("encrypt")
    named = plain(encrypt)["key"] if isinstance(encrypt, MappingNode) else None
    obfuscate = section.get("obfuscate")
    return Protection(
        obfuscate is not None and plain(obfuscate) is True,
        None if named is None else named.removeprefix(_ENVIRONMENT),
    )


def protection_problems(target: TargetSections) -> Iterator[Problem]:
    """Report an encryption key in the recipe, and models that cannot be encrypted."""
    protect = target.mapping("protect")
    encrypt = None if protect is None else protect.get("encrypt")
    if not isinstance(encrypt, MappingNode):
        return
    key, artifact = encrypt.get("key"), target.get("artifact")
    if isinstance(key, Scalar) and not (isinstance(key.value, str) and _NAMED_KEY.match(key.value)):
        message = "a recipe cannot contain the key itself"
        hint = "write 'key: env:NAME', where NAME is the variable that has it"
        yield Problem(_hidden(key.place), message, hint)
    if artifact is not None and plain(artifact) == "memmapped":
        message = "an encrypted model cannot be mapped into memory"
        yield Problem(encrypt.place, message, "leave 'encrypt' out, or ship 'artifact: frozen'")


def _hidden(place: Place) -> Place:
    """Return a location whose line is shown in messages with the secret replaced."""
    written = place.source
    lines = list(written.lines)
    lines[place.line - 1] = f"{lines[place.line - 1][: place.column - 1]}***"
    return place._replace(source=SourceText(written.name, written.folder, "\n".join(lines)))


def integration_of(section: MappingNode | None) -> Integration | None:
    """Return the integration that a valid section describes."""
    if section is None:
        return None
    given: dict[str, Any] = plain(section)
    given["languages"] = tuple(given["languages"])
    if given.get("threads") is not None:
        given["threads"] = int(given["threads"])
    return Integration(**given)


def integration_problems(target: TargetSections) -> Iterator[Problem]:
    """Report names that are invalid in a language, and models that an interface cannot load."""
    section = target.mapping("integration")
    if section is None:
        return
    if "languages" not in section.entries:
        place = target.tree.entries["integration"].key_place
        yield Problem(place, "the key 'languages' is missing", "add 'languages: [java]'")
    package, name = section.get("package"), section.get("class_name")
    if isinstance(package, Scalar) and isinstance(package.value, str):
        for word in sorted(set(_KEYWORDS.split()) & set(package.value.split("."))):
            yield Problem(package.place, f"{word!r} cannot be a part of a package", "rename it")
    if isinstance(name, Scalar) and name.value in _TYPES.split():
        message = f"the code has another class of the name {name.value!r}"
        yield Problem(name.place, message, "choose another name")
    languages, artifact = section.get("languages"), target.get("artifact")
    form = None if artifact is None else plain(artifact)
    yield from _runtime_problems(languages, is_lite=form == "tflite")
    if form not in ("text", "memmapped") or not isinstance(languages, Sequence):
        return
    for item in languages.items:
        if plain(item) in _OF_ANDROID:
            message = "TensorFlowInferenceInterface loads no model with "
            message += f"'artifact: {form}', as {plain(item)!r} would"
            yield Problem(item.place, message, "leave it out, or ship 'artifact: frozen'")


def _runtime_problems(languages: Node | None, *, is_lite: bool) -> Iterator[Problem]:
    """Report languages without an interface to the runtime that loads the model."""
    missing, hint = ("objc", "write 'swift' or 'cpp'") if is_lite else ("swift", "write 'objc'")
    runtime = "LiteRT" if is_lite else "TensorFlow"
    for item in languages.items if isinstance(languages, Sequence) else ():
        if plain(item) == missing:
            yield Problem(item.place, f"no code for {runtime} is here in {missing!r}", hint)


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
        trials: maximum number of layer rules to try within the limits of the validation; 0 to run
            the step as written.
    """

    name: str
    params: tuple[tuple[str, ParameterValue], ...] = ()
    plugin: Plugin | None = None
    files: tuple[StepFile, ...] = ()
    place: str = ""
    note: str = ""
    aside: ClassVar[frozenset[str]] = frozenset({"files", "place", "note"})
    takes_ranges: bool = False
    trials: int = 0

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
        validation: how to check the result, or None.
        quantize: what ``transforms`` does to constants.
        registration: TensorFlow versions for which to write ``ops_to_register.h``.
        allow: ops that may ship although one of these versions does not have them.
        ops: ops that the app registers itself.
        integration: the code with which an app runs the model, or None.
        protect: measures that make it harder to extract the model from the app.
        budget: limits.
        device: device for latency estimates, or None.
        device_file: profile of the device if it is a file, otherwise None.
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
    validation: Validation | None = None
    quantization_report: Annotated[
        bool | None,
        Option(
            "Whether the report compares each quantized tensor with float, on 16 samples of the "
            "validation or the calibration. Default: only with `quantize_nodes`; `true` includes "
            "transforms that only quantize weights."
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
    integration: Integration | None = None
    protect: Protection = field(default_factory=Protection)
    budget: Budget = field(default_factory=Budget)
    device: Device | None = None
    device_file: InputFile | None = None
    tree: MappingNode | None = None
    aside: ClassVar[frozenset[str]] = frozenset({"device_file", "tree"})

    @property
    def ranges_of_file(self) -> bool:
        """Whether the LiteRT file computes in integers with calibrated ranges."""
        computes = self.artifact == "tflite" and self.quantize.mode in INTEGER_MODES
        return computes and self.calibration is not None

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
    files: tuple[Path, ...] = ()
    tree: MappingNode | None = None
    aside: ClassVar[frozenset[str]] = frozenset(
        {"file", "variables", "cache", "memory", "files", "tree"}
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
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: digestible(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if not f.metadata.get("aside")
        }
    if isinstance(value, tuple):
        return [digestible(item) for item in value]
    return value
