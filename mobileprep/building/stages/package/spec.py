"""The stages `package`, `compress`, and `encrypt`: parameters, inputs, outputs, and records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from msgspec import Struct, field

from mobileprep.building.plan.engines import regex_engine
from mobileprep.building.plan.fingerprints import compressor
from mobileprep.building.plan.sources import single_file
from mobileprep.building.plan.spec import PUBLISHED, Files, Stage, StageSpec, Upstream, places
from mobileprep.building.stages.freeze.spec import Frozen
from mobileprep.core.keys import key_from_environment
from mobileprep.data.options import Reading
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Artifact, Data, InputFile, InputSpec, Platform
from mobileprep.recipe.validation_settings import Quantize

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


class PackageRecord(Struct, frozen=True):
    """What ships, ``package.json``.

    Args:
        model: the model file.
        ops: how many nodes of each op it has.
        warnings: what the user should know of it.
        kernels: what the header for each release registers.
    """

    model: ModelFacts
    ops: Mapping[str, int]
    warnings: tuple[str, ...]
    kernels: tuple[KernelsRecord, ...] = ()


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
    reported: ClassVar[type[Struct] | None] = PackageRecord

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


class CompressRecord(Struct, frozen=True):
    """The model file as app packages store it, ``compress.json``.

    Args:
        bytes: the length of the compressed file.
        compressor: what the figure is for.
    """

    bytes: int
    compressor: str


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
    reported: ClassVar[type[Struct] | None] = CompressRecord

    compressor: str
    graph: Upstream | None = None
    model: Upstream | None = None

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


ENCRYPTED: Final = ".enc"
"""Suffix of encrypted files."""


class EncryptStage(Stage, frozen=True, kw_only=True):
    """The model file, encrypted.

    Args:
        file: the name of the file to leave.
        artifact: the form of the model.
        variable: the variable of the environment that has the key.
        key_id: tells one key from another, and nothing else of it.
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
        """The encrypted file alone."""
        return (f"{PUBLISHED}{self.file}",)


def encrypted_file(target: Target, file: str) -> str:
    """The name of the encrypted file that ships in place of a model file, or an empty text."""
    return "" if target.protect.key is None else f"{file}{ENCRYPTED}"


def encrypt_spec(target: Target, variable: str, file: str, model: Upstream) -> StageSpec:
    """The stage that encrypts a model file."""
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
    """The file of classes that an app gets, where it gets code or a file for LiteRT."""
    data = _app_data(target)
    is_told = target.integration is not None or target.artifact == "tflite"
    return data.classes if data is not None and is_told else None


def app_pictures(target: Target) -> tuple[Reading | None, str | None]:
    """How an app's pictures become values, and of which input, where that is said."""
    data = _app_data(target)
    is_fed, named = (False, None) if data is None else _pictures(data)
    return (data.reading if data is not None and is_fed else None), named


def lite_description(target: Target) -> dict[str, Any]:
    """What a ``PackageStage`` is told for the description of a file for LiteRT."""
    reading, picture_input = app_pictures(target)
    classes = app_classes(target)
    return {
        "inputs": target.inputs,
        "reading": reading,
        "picture_input": picture_input,
        "classes": None if classes is None else single_file(classes),
    }


def _app_data(target: Target) -> Data | None:
    """The data that is as what the app feeds: the validation's, else the calibration's."""
    if target.validation is not None:
        return target.validation.data
    return None if target.calibration is None else target.calibration.data


def _pictures(data: Data) -> tuple[bool, str | None]:
    """Whether pictures are fed, and to which input, where that is said."""
    if data.kind == "pictures":
        return True, data.reading.input
    names = [name for name, feature in data.reading.features if feature.encoding == "picture"]
    return bool(names), names[0] if names else None


class ModelFacts(Struct, frozen=True):
    """The packaged model: its file, and the counts of its nodes.

    Args:
        file: the name of the file.
        nodes: of the graph, functions' bodies included.
        parameters: elements of all constants together.
        constants: how many Const nodes.
        bytes: the length of the file.
        basis: what nodes, parameters, and ops are counted on, if that is not the file:
            ``counted on the graph before conversion``.
    """

    file: str
    nodes: int
    parameters: int
    constants: int
    bytes: int
    basis: str = ""


class KernelsRecord(Struct, frozen=True):
    """What a header registers.

    Args:
        tensorflow: the release that it is for.
        kernels: how many.
        bytes: about how much code they are; None for a release without an estimate.
    """

    tensorflow: str
    kernels: int
    bytes: int | None


ENDINGS: Final = {"text": "pbtxt", "tflite": "tflite"}
"""How the file of an artifact ends, where that is not ``pb``."""


def package_spec(
    target: Target, file: str, frozen: Frozen, graph: Upstream, ranges: Upstream | None
) -> StageSpec:
    """The stage that makes the files of a target."""
    is_lite = target.artifact == "tflite"
    quantize = target.quantize if is_lite else Quantize()
    described = lite_description(target) if is_lite else {}
    stage = PackageStage(
        file=file,
        artifact=target.artifact,
        flex=target.flex,
        min_runtime=target.min_runtime,
        encrypted=encrypted_file(target, file),
        platform=target.platform,
        abis=target.abis,
        # Headers are for TensorFlow's runtime, which LiteRT is not.
        registration=() if is_lite else target.registration,
        allow=() if is_lite else target.allow,
        ops={} if is_lite else {op.name: op.kernels for op in target.ops},
        op_sources={} if is_lite else _op_sources(target),
        **described,
        graph=graph,
        interface=frozen.interface,
        assets=frozen.assets if is_lite else None,
        quantize=quantize,
        ranges=ranges,
        regular_expressions=regex_engine() if quantize.rules else "",
    )
    shipping = places(target, "platform", "abis", "registration", "ops", "artifact", "quantize")
    where = {**shipping, **places(target, "transforms", "inputs", "validation")}
    return StageSpec(f"{target.folder}/package", stage, where)


def _op_sources(target: Target) -> dict[str, Files]:
    files = [single_file(source) for op in target.ops for source in op.sources]
    return {f"op source {file.root.name}": file for file in files}


def compress_spec(target: Target, graph: Upstream, shipped: Upstream) -> StageSpec:
    """The stage that measures how small a target's model file compresses."""
    is_graph = target.artifact == "frozen" and target.protect.key is None
    read = {"graph": graph} if is_graph else {"model": shipped}
    stage = CompressStage(compressor=compressor(), **read)
    return StageSpec(f"{target.folder}/compress", stage)
