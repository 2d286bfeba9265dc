"""The stages `package`, `compress`, and `encrypt`: parameters, inputs, outputs, and records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from msgspec import Struct, field

from mobileprep.building.plan.engines import regex_engine
from mobileprep.building.plan.fingerprints import compressor
from mobileprep.building.plan.sources import single_file
from mobileprep.building.plan.spec import PUBLISHED, Files, Stage, StageSpec, Upstream, places
from mobileprep.building.stages.freeze.spec import Frozen
from mobileprep.core.keys import key_from_environment
from mobileprep.data.options import Reading
from mobileprep.formats.tflite.streaming import Streaming
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Artifact, Data, InputFile, InputSpec, Platform
from mobileprep.recipe.validation_settings import Quantize

HEADER: Final = "ops_to_register.h"


OP_SOURCES: Final = "custom_ops/"
"""Directory of a target for the C++ files of the app's own ops."""


_FRAGMENTS: Final = ("selective_registration.bazelrc", "selective_registration.bzl")


# For each TensorFlow version, the header and its build fragments.
_REGISTRATION: Final = {
    "1.15": (HEADER, *_FRAGMENTS, "selective_registration.mk", "tf_op_files.txt"),
    "2.21": (HEADER, *_FRAGMENTS),
}


# For each platform, the files with which the app's build links TensorFlow 1.15.
_APP: Final = {
    "android": ("app.gradle", "app.mk"),
    "ios": ("app.xcconfig", "{}.podspec"),
    "raspberry-pi": ("app.mk",),
    "linux": ("app.mk",),
}


class LiteEnd(Struct, frozen=True):
    """An input or output of a .tflite file.

    Args:
        name: name of the tensor.
        dtype: type of its elements, such as ``float32``.
        shape: its sizes, -1 for open ones.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]


class LiteInterface(Struct, frozen=True):
    """Inputs and outputs of a .tflite file.

    Args:
        inputs: inputs in the order of the file.
        outputs: outputs in the order of the file.
        streaming: how to run the file on a stream; None for other files.
    """

    inputs: tuple[LiteEnd, ...]
    outputs: tuple[LiteEnd, ...]
    streaming: Streaming | None = None


class PackageRecord(Struct, frozen=True):
    """The published model, ``package.json``.

    Args:
        model: the model file.
        ops: number of nodes of each op.
        warnings: warnings for the user.
        kernels: kernels that the header for each release registers.
        lite: inputs and outputs of a .tflite file; None for other files.
    """

    model: ModelFacts
    ops: Mapping[str, int]
    warnings: tuple[str, ...]
    kernels: tuple[KernelsRecord, ...] = ()
    lite: LiteInterface | None = None


class PackageStage(Stage, frozen=True, kw_only=True):
    """Write the files that an app needs.

    Args:
        file: name of the model file.
        artifact: format of the model file.
        flex: whether a .tflite file may use the Flex delegate.
        min_runtime: oldest release that must run a .tflite file; empty for any.
        streaming: number of time steps of each call of a .tflite file; None for whole sequences.
        encrypted: name of the encrypted file that is published instead; empty if not encrypted.
        platform: platform of the target.
        abis: ABIs to build for; empty for all.
        registration: TensorFlow versions to write headers for.
        allow: ops that are allowed although one of those versions lacks them.
        ops: kernel classes of the ops that the app registers itself, by op.
        op_sources: C++ files of those ops.
        inputs: for .tflite files, the inputs that the recipe declares.
        reading: for .tflite files, options for converting images to values of ``image_input``, or
            None.
        image_input: for .tflite files, the input for images; None for the only input.
        classes: for .tflite files, the file that lists the classes.
        graph: the graph after all transforms.
        interface: inputs and outputs.
        assets: for .tflite files, the files that the graph reads.
        quantize: for .tflite files, the quantization of weights and activations.
        ranges: for .tflite files, the measured ranges for integer arithmetic.
        exceptions: for .tflite files, the exceptions that ``quantize: auto`` chose.
        regular_expressions: regular expression engine for the rules, with its version.
    """

    stage_name: ClassVar[str] = "package"
    stage_version: ClassVar[int] = 20
    RECORD: ClassVar[str] = "package.json"
    reported: ClassVar[type[Struct] | None] = PackageRecord

    file: str
    artifact: Artifact
    flex: bool = False
    min_runtime: str = ""
    streaming: int | None = None
    encrypted: str = ""
    platform: Platform
    abis: tuple[str, ...] = ()
    registration: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    ops: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    op_sources: Mapping[str, Files] = field(default_factory=dict)
    inputs: tuple[InputSpec, ...] = ()
    reading: Reading | None = None
    image_input: str | None = None
    classes: Files | None = None
    graph: Upstream
    interface: Upstream
    assets: Upstream | None = None
    quantize: Quantize = field(default_factory=Quantize)
    ranges: Upstream | None = None
    exceptions: Upstream | None = None
    regular_expressions: str = ""

    @property
    def model(self) -> str:
        """Name of the model's output."""
        return self.file if self.encrypted else f"{PUBLISHED}{self.file}"

    @property
    def output_files(self) -> tuple[str, ...]:
        """The model, headers, build fragments, files for the app's build, and the record."""
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
        """Name of the model."""
        return self.file.rpartition(".")[0]

    @property
    def _app_files(self) -> tuple[str, ...]:
        return _APP.get(self.platform, ()) if "1.15" in self.registration else ()

    def registration_folder(self, release: str) -> str:
        """Return the directory of a release's header. If there are several, each has its own."""
        return "" if len(self.registration) == 1 else f"tensorflow-{release}/"


class CompressRecord(Struct, frozen=True):
    """Compressed size of the model file, as in app packages, ``compress.json``.

    Args:
        bytes: size of the compressed file in bytes.
        compressor: the compressor.
    """

    bytes: int
    compressor: str


class CompressStage(Stage, frozen=True, kw_only=True):
    """Measure the compressed size of a model file, as in app packages.

    Args:
        compressor: the compressor, with its version and level.
        graph: the graph, if the file contains nothing else; the stage then does not wait for the
            file.
        model: the model file, if ``graph`` is not set.
    """

    stage_name: ClassVar[str] = "compress"
    stage_version: ClassVar[int] = 3
    RECORD: ClassVar[str] = "compress.json"
    reported: ClassVar[type[Struct] | None] = CompressRecord

    compressor: str
    graph: Upstream | None = None
    model: Upstream | None = None


ENCRYPTED: Final = ".enc"
"""Suffix of encrypted files."""


class EncryptStage(Stage, frozen=True, kw_only=True):
    """Encrypt the model file.

    Args:
        file: name of the output file.
        artifact: format of the model.
        variable: environment variable with the key.
        key_id: ID of the key, which reveals nothing else about it.
        model: the model file.
    """

    stage_name: ClassVar[str] = "encrypt"
    stage_version: ClassVar[int] = 1

    file: str
    artifact: Artifact
    variable: str
    key_id: str
    model: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        return (f"{PUBLISHED}{self.file}",)


def encrypted_file(target: Target, file: str) -> str:
    """Return the name of the encrypted file that replaces a model file, or an empty string."""
    return "" if target.protect.key is None else f"{file}{ENCRYPTED}"


def encrypt_spec(target: Target, variable: str, file: str, model: Upstream) -> StageSpec:
    """Return the stage that encrypts a model file."""
    where = target.place(("protect", "encrypt", "key"))
    key = key_from_environment(variable, where)
    stage = EncryptStage(
        file=file,
        artifact=target.artifact,
        variable=variable,
        key_id=key.id.hex(),
        model=model,
    )
    return StageSpec(f"{target.folder}/encrypt", stage, {"protect": where})


def app_classes(target: Target) -> InputFile | None:
    """Return the file of classes if the app gets code or a .tflite file."""
    data = _app_data(target)
    is_told = target.integration is not None or target.artifact == "tflite"
    return data.classes if data is not None and is_told else None


def app_images(target: Target) -> tuple[Reading | None, str | None]:
    """Return the options for converting an app's images to values, and their input, if known."""
    data = _app_data(target)
    is_fed, named = (False, None) if data is None else _images(data)
    return (data.reading if data is not None and is_fed else None), named


def _app_data(target: Target) -> Data | None:
    """Return the data that resembles the app's inputs: the validation's, else the calibration's."""
    if target.validation is not None:
        return target.validation.data
    return None if target.calibration is None else target.calibration.data


def _images(data: Data) -> tuple[bool, str | None]:
    """Return whether the inputs are images, and the input for them, if specified."""
    if data.kind == "pictures":
        return True, data.reading.input
    names = [name for name, feature in data.reading.features if feature.encoding == "picture"]
    return bool(names), names[0] if names else None


class ModelFacts(Struct, frozen=True):
    """File and node counts of the packaged model.

    Args:
        file: file name.
        nodes: number of nodes of the graph, including function bodies.
        parameters: number of elements of all constants.
        constants: number of Const nodes.
        bytes: size of the file in bytes.
        basis: graph that nodes, parameters, and ops were counted on, if it is not the file's:
            ``counted on the graph before conversion``.
    """

    file: str
    nodes: int
    parameters: int
    constants: int
    bytes: int
    basis: str = ""


class KernelsRecord(Struct, frozen=True):
    """Kernels that a header registers.

    Args:
        tensorflow: TensorFlow release.
        kernels: number of kernels.
        bytes: estimated size of their code in bytes; None for a release without an estimate.
    """

    tensorflow: str
    kernels: int
    bytes: int | None


ENDINGS: Final = {"text": "pbtxt", "tflite": "tflite"}
"""File extensions of artifacts other than ``pb``."""


def package_spec(
    target: Target,
    file: str,
    frozen: Frozen,
    graph: Upstream,
    ranges: Upstream | None,
    exceptions: Upstream | None = None,
) -> StageSpec:
    """Return the stage that writes the files of a target."""
    is_lite = target.artifact == "tflite"
    quantize = target.quantize if is_lite else Quantize()
    reading, image_input = app_images(target) if is_lite else (None, None)
    classes = app_classes(target) if is_lite else None
    stage = PackageStage(
        file=file,
        artifact=target.artifact,
        flex=target.flex,
        min_runtime=target.min_runtime,
        streaming=target.streaming.steps if is_lite and target.streaming else None,
        encrypted=encrypted_file(target, file),
        platform=target.platform,
        abis=target.abis,
        # Headers are for TensorFlow's runtime, not for LiteRT.
        registration=() if is_lite else target.registration,
        allow=() if is_lite else target.allow,
        ops={} if is_lite else {op.name: op.kernels for op in target.ops},
        op_sources={} if is_lite else _op_sources(target),
        inputs=target.inputs if is_lite else (),
        reading=reading,
        image_input=image_input,
        classes=None if classes is None else single_file(classes),
        graph=graph,
        interface=frozen.interface,
        assets=frozen.assets if is_lite else None,
        quantize=quantize,
        ranges=ranges,
        exceptions=exceptions,
        regular_expressions=regex_engine() if quantize.rules or exceptions else "",
    )
    shipping = places(target, "platform", "abis", "registration", "ops", "artifact", "quantize")
    where = {**shipping, **places(target, "transforms", "inputs", "validation")}
    return StageSpec(f"{target.folder}/package", stage, where)


def _op_sources(target: Target) -> dict[str, Files]:
    files = [single_file(source) for op in target.ops for source in op.sources]
    return {f"op source {file.root.name}": file for file in files}


def compress_spec(target: Target, graph: Upstream, shipped: Upstream) -> StageSpec:
    """Return the stage that measures the compressed size of a target's model file."""
    is_graph = target.artifact == "frozen" and target.protect.key is None
    read = {"graph": graph} if is_graph else {"model": shipped}
    stage = CompressStage(compressor=compressor(), **read)
    return StageSpec(f"{target.folder}/compress", stage)
