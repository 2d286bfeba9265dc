"""Files by which an app's own build links LiteRT for a model, and has the model in the app."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from mobileprep.formats.tflite.metadata import DescriptionTable
from mobileprep.graph.attrs import TensorShape
from mobileprep.targets.app_files import copied_model, packed_model, text_of
from mobileprep.targets.integration.render import AppTensor, Pictures
from mobileprep.targets.targets import Abi, platform_named

# As they were published when this was written; an app may name others.
_ANDROID: Final = "com.google.ai.edge.litert:litert:1.4.0"
_ANDROID_FLEX: Final = "org.tensorflow:tensorflow-lite-select-tf-ops:2.16.1"
_PODS: Final = ("TensorFlowLiteSwift",)
_FLEX_POD: Final = "TensorFlowLiteSelectTfOps"
_IOS: Final = "12.0"
_IOS_WITH_CRYPTOKIT: Final = "13.0"


class LiteOperator(NamedTuple):
    """An operator that a file needs.

    Args:
        name: the builtin's, or the custom operator's.
        version: the newest that the file asks for.
        is_custom: whether it is no builtin.
    """

    name: str
    version: int
    is_custom: bool


class LiteFile(NamedTuple):
    """A .tflite file as an app's build sees it.

    Args:
        name: the model's name.
        file: the file's, before encryption.
        operators: what it needs.
        runtime: the oldest release of TensorFlow Lite that runs it.
        has_flex: whether the app has to link the Flex delegate.
        encrypted: the name of the encrypted file that ships; empty if it is not encrypted.
    """

    name: str
    file: str
    operators: tuple[LiteOperator, ...]
    runtime: str
    has_flex: bool
    encrypted: str = ""

    @property
    def shipped(self) -> str:
        """The file that the app gets."""
        return self.encrypted or self.file


def lite_files(platform: str, abis: Collection[str], model: LiteFile) -> dict[str, str]:
    """What goes with a .tflite file for the build of its app: file names and texts.

    - ``litert_ops.txt``: the operators with their versions, for a runtime that has these alone.
    - ``litert.BUILD``: rules of TensorFlow's Bazel build that make such a runtime from the file.
    - ``app.gradle`` for Android: the model among the app's assets, binary interfaces, LiteRT.
    - ``NAME.podspec`` for iOS: the model, and the code that runs it, as a pod.
    """
    wanted = platform_named(platform).abis_named(abis)
    files = {"litert_ops.txt": _operators(model), "litert.BUILD": _bazel(model)}
    if platform == "android":
        files["app.gradle"] = _gradle(wanted, model)
    if platform == "ios":
        files[f"{model.name}.podspec"] = _podspec(model)
    return files


def _operators(model: LiteFile) -> str:
    lines = [
        f"# The operators of {model.file}, each with the version that a runtime has to have; those",
        f"# of release {model.runtime} and newer do.",
    ]
    for operator in sorted(model.operators):
        kind = " custom" if operator.is_custom else ""
        lines.append(f"{operator.name} {operator.version}{kind}")
    return text_of(lines)


def _bazel(model: LiteFile) -> str:
    """Rules of ``tensorflow/lite/build_def.bzl``, or of the Flex delegate's."""
    name, source = model.name, model.file
    lines = [
        f"# A runtime with the operators of {source} alone, by TensorFlow's own Bazel build. As",
        "# BUILD, beside the model, in a folder of its source tree:",
        f"#   bazel build -c opt --config=android_arm64 :{name}_android",
        f"#   bazel build -c opt --config=ios_arm64 :{name}_cc",
    ]
    if model.encrypted:
        lines.append(f"# {source} is that of a target without 'encrypt': Bazel cannot decrypt it.")
    rules, prefix = "//tensorflow/lite:build_def.bzl", "tflite_custom"
    if model.has_flex:
        rules, prefix = "//tensorflow/lite/delegates/flex:build_def.bzl", "tflite_flex"
    lines.append(f'load("{rules}", "{prefix}_android_library", "{prefix}_cc_library")')
    for rule in ("android", "cc"):
        lines += [
            "",
            f"{prefix}_{rule}_library(",
            f'    name = "{name}_{rule}",',
            f'    models = [":{source}"],',
            '    visibility = ["//visibility:public"],',
            ")",
        ]
    return text_of(lines)


def _gradle(abis: Sequence[Abi], model: LiteFile) -> str:
    flex = ""
    if model.has_flex:
        flex = f"\n    dependencies.add('implementation', '{_ANDROID_FLEX}')"
    return f"""\
// Adds {model.shipped} and the code that runs it to an Android app. In its build.gradle, after the
// plugin com.android.application:
//   apply from: 'PATH/app.gradle'
// LiteRT is what was published. One of your own, built by litert.BUILD, is an .aar that is named
// before that line:
//   ext.litertLibrary = file('libs/litert.aar')
{copied_model(model.name, model.shipped, abis)}
{packed_model(model.shipped)}
if (project.hasProperty('litertLibrary')) {{
    dependencies.add('implementation', files(litertLibrary))
}} else {{
    dependencies.add('implementation', '{_ANDROID}'){flex}
}}
"""


def _podspec(model: LiteFile) -> str:
    pods = (*_PODS, _FLEX_POD) if model.has_flex else _PODS
    linked = "\n".join(f"  pod.dependency '{pod}'" for pod in pods)
    forced = ""
    if model.has_flex:
        # Nothing refers to the delegate by name.
        framework = f"$(PODS_ROOT)/{_FLEX_POD}/Frameworks/{_FLEX_POD}.xcframework/ios-arm64"
        library = f"{framework}/{_FLEX_POD}.framework/{_FLEX_POD}"
        forced = (
            f"\n  pod.user_target_xcconfig = {{ 'OTHER_LDFLAGS' => '-force_load \"{library}\"' }}"
        )
    return f"""\
# {model.shipped}, and the code that runs it, as a pod. In the app's Podfile:
#   pod '{model.name}', :path => 'PATH'
Pod::Spec.new do |pod|
  pod.name = '{model.name}'
  pod.version = '1.0.0'
  pod.summary = 'The model {model.shipped}, and the code that runs it'
  pod.source = {{ :path => '.' }}
  pod.platform = :ios, '{_IOS_WITH_CRYPTOKIT if model.encrypted else _IOS}'
  pod.static_framework = true
  pod.swift_version = '5.0'
  pod.resources = '{{{model.shipped},{model.name}_labels.txt,assets}}'
  pod.source_files = 'integration/swift/*.swift'
{linked}{forced}
end
"""


LABELS: Final = "labels.txt"
"""The name of the classes' file behind the model."""

# What is written here, readers of the format's first version know.
_READER: Final = "1.0.0"
_COLOURS: Final = {"rgb": "RGB", "grayscale": "GRAYSCALE"}
_WHITE: Final = 255.0


def described(
    name: str,
    inputs: Sequence[AppTensor],
    outputs: Sequence[AppTensor],
    pictures: Pictures | None,
    classes: int,
) -> DescriptionTable:
    """The description of a model.

    Args:
        pictures: how pictures become values of an input; None where none are fed. Readers know no
            order but red, green and blue, so pictures in another one are told as plain numbers.
        classes: how many there are in the file of classes; 0 for none. They are of the first
            output whose last size this is.
    """
    labelled = next((t for t in outputs if classes and t.shape and t.shape[-1] == classes), None)
    graph = DescriptionTable(
        "SubGraphMetadata",
        {
            "input_tensor_metadata": [_input(tensor, pictures) for tensor in inputs],
            "output_tensor_metadata": [_output(t, is_labelled=t is labelled) for t in outputs],
        },
    )
    return DescriptionTable(
        "ModelMetadata",
        {"name": name, "subgraph_metadata": [graph], "min_parser_version": _READER},
    )


def _input(tensor: AppTensor, pictures: Pictures | None) -> DescriptionTable:
    if pictures is None or pictures.input != tensor.name or pictures.channels not in _COLOURS:
        return DescriptionTable("TensorMetadata", {"name": tensor.name})
    mean, std = pictures.mean, pictures.std
    least = [-m / s for m, s in zip(mean, std, strict=True)]
    most = [(_WHITE - m) / s for m, s in zip(mean, std, strict=True)]
    colours = {"color_space": _COLOURS[pictures.channels], **_size(tensor.shape)}
    normalization = DescriptionTable("NormalizationOptions", {"mean": mean, "std": std})
    return DescriptionTable(
        "TensorMetadata",
        {
            "name": tensor.name,
            "content": DescriptionTable(
                "Content", {"content_properties": DescriptionTable("ImageProperties", colours)}
            ),
            "process_units": [DescriptionTable("ProcessUnit", {"options": normalization})],
            "stats": DescriptionTable("Stats", {"max": most, "min": least}),
        },
    )


def _size(shape: TensorShape) -> dict[str, DescriptionTable]:
    """The size of pictures, where a shape has one."""
    if shape is None or len(shape) < 3 or min(shape[-3:-1]) < 1:
        return {}
    height, width = shape[-3:-1]
    return {"default_size": DescriptionTable("ImageSize", {"width": width, "height": height})}


def _output(tensor: AppTensor, *, is_labelled: bool) -> DescriptionTable:
    if not is_labelled:
        return DescriptionTable("TensorMetadata", {"name": tensor.name})
    file = DescriptionTable("AssociatedFile", {"name": LABELS, "type": "TENSOR_AXIS_LABELS"})
    return DescriptionTable("TensorMetadata", {"name": tensor.name, "associated_files": [file]})
