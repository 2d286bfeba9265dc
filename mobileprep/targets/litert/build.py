"""Build files that link LiteRT in an app and package the model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from mobileprep.formats.tflite.metadata import DescriptionTable
from mobileprep.graph.attrs import TensorShape
from mobileprep.targets.app_files import copied_model, packed_model, text_of
from mobileprep.targets.integration.render import AppTensor, Images
from mobileprep.targets.targets import Abi, platform_named

# The newest versions at the time of writing. An app may use others.
_ANDROID: Final = "com.google.ai.edge.litert:litert:1.4.0"
_ANDROID_FLEX: Final = "org.tensorflow:tensorflow-lite-select-tf-ops:2.16.1"
_PODS: Final = ("TensorFlowLiteSwift",)
_FLEX_POD: Final = "TensorFlowLiteSelectTfOps"
_IOS: Final = "12.0"
_IOS_WITH_CRYPTOKIT: Final = "13.0"


class LiteOperator(NamedTuple):
    """An operator that a file needs.

    Args:
        name: name of the builtin or of the custom operator.
        version: newest version in the file.
        is_custom: whether it is a custom operator.
    """

    name: str
    version: int
    is_custom: bool


class LiteFile(NamedTuple):
    """A .tflite file, as described in the build files of an app.

    Args:
        name: model name.
        file: name of the file before encryption.
        operators: operators of the file.
        runtime: oldest release of TensorFlow Lite that runs it.
        has_flex: whether the app has to link the Flex delegate.
        encrypted: name of the encrypted file; empty if it is not encrypted.
    """

    name: str
    file: str
    operators: tuple[LiteOperator, ...]
    runtime: str
    has_flex: bool
    encrypted: str = ""

    @property
    def shipped(self) -> str:
        """Name of the published file."""
        return self.encrypted or self.file


def lite_files(platform: str, abis: Collection[str], model: LiteFile) -> dict[str, str]:
    """Return the files for building an app with a .tflite file: names and contents.

    - ``litert_ops.txt``: the operators with their versions, for a runtime with only these.
    - ``litert.BUILD``: rules for TensorFlow's Bazel build that build such a runtime.
    - ``app.gradle`` for Android: adds the model to the assets, selects ABIs, and links LiteRT.
    - ``NAME.podspec`` for iOS: the model, and the code that runs it, as a pod.
    """
    requested = platform_named(platform).abis_named(abis)
    files = {"litert_ops.txt": _operators(model), "litert.BUILD": _bazel(model)}
    if platform == "android":
        files["app.gradle"] = _gradle(requested, model)
    if platform == "ios":
        files[f"{model.name}.podspec"] = _podspec(model)
    return files


def _operators(model: LiteFile) -> str:
    lines = [
        f"# The operators of {model.file}, each with the version that the runtime must have;",
        f"# releases {model.runtime} and newer have them.",
    ]
    for operator in sorted(model.operators):
        kind = " custom" if operator.is_custom else ""
        lines.append(f"{operator.name} {operator.version}{kind}")
    return text_of(lines)


def _bazel(model: LiteFile) -> str:
    """Return rules of ``tensorflow/lite/build_def.bzl``, or of the Flex delegate's."""
    name, source = model.name, model.file
    lines = [
        f"# A runtime with only the operators of {source}, built by TensorFlow's Bazel build.",
        "# Copy this file as BUILD, with the model, to a directory of TensorFlow's source tree:",
        f"#   bazel build -c opt --config=android_arm64 :{name}_android",
        f"#   bazel build -c opt --config=ios_arm64 :{name}_cc",
    ]
    if model.encrypted:
        lines.append(f"# Use {source} of a target without 'encrypt': Bazel cannot decrypt.")
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
// By default, the app uses the published LiteRT. To use your own build (litert.BUILD), name its
// .aar before that line:
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
        # No code refers to the delegate by name.
        framework = f"$(PODS_ROOT)/{_FLEX_POD}/Frameworks/{_FLEX_POD}.xcframework/ios-arm64"
        library = f"{framework}/{_FLEX_POD}.framework/{_FLEX_POD}"
        forced = (
            f"\n  pod.user_target_xcconfig = {{ 'OTHER_LDFLAGS' => '-force_load \"{library}\"' }}"
        )
    return f"""\
# A pod with {model.shipped} and the code that runs it. In the app's Podfile:
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
"""Name of the appended file of classes."""

# Readers of the format's first version support all fields that are written here.
_READER: Final = "1.0.0"
_COLORS: Final = {"rgb": "RGB", "grayscale": "GRAYSCALE"}
_WHITE: Final = 255.0


def described(
    name: str,
    inputs: Sequence[AppTensor],
    outputs: Sequence[AppTensor],
    images: Images | None,
    classes: int,
) -> DescriptionTable:
    """Create the metadata of a model.

    Args:
        images: conversion of images to values of an input; None without images. The metadata only
            supports RGB and grayscale, so inputs with another channel order are plain tensors.
        classes: number of classes in the file of classes, or 0. They belong to the first output
            whose last dimension has this size.
    """
    labeled = next((t for t in outputs if classes and t.shape and t.shape[-1] == classes), None)
    graph = DescriptionTable(
        "SubGraphMetadata",
        {
            "input_tensor_metadata": [_input(tensor, images) for tensor in inputs],
            "output_tensor_metadata": [_output(t, is_labeled=t is labeled) for t in outputs],
        },
    )
    return DescriptionTable(
        "ModelMetadata",
        {"name": name, "subgraph_metadata": [graph], "min_parser_version": _READER},
    )


def _input(tensor: AppTensor, images: Images | None) -> DescriptionTable:
    if images is None or images.input != tensor.name or images.channels not in _COLORS:
        return DescriptionTable("TensorMetadata", {"name": tensor.name})
    mean, std = images.mean, images.std
    minimum = [-m / s for m, s in zip(mean, std, strict=True)]
    maximum = [(_WHITE - m) / s for m, s in zip(mean, std, strict=True)]
    colors = {"color_space": _COLORS[images.channels], **_size(tensor.shape)}
    normalization = DescriptionTable("NormalizationOptions", {"mean": mean, "std": std})
    return DescriptionTable(
        "TensorMetadata",
        {
            "name": tensor.name,
            "content": DescriptionTable(
                "Content", {"content_properties": DescriptionTable("ImageProperties", colors)}
            ),
            "process_units": [DescriptionTable("ProcessUnit", {"options": normalization})],
            "stats": DescriptionTable("Stats", {"max": maximum, "min": minimum}),
        },
    )


def _size(shape: TensorShape) -> dict[str, DescriptionTable]:
    """Return the image size, if a shape has one."""
    if shape is None or len(shape) < 3 or min(shape[-3:-1]) < 1:
        return {}
    height, width = shape[-3:-1]
    return {"default_size": DescriptionTable("ImageSize", {"width": width, "height": height})}


def _output(tensor: AppTensor, *, is_labeled: bool) -> DescriptionTable:
    if not is_labeled:
        return DescriptionTable("TensorMetadata", {"name": tensor.name})
    file = DescriptionTable("AssociatedFile", {"name": LABELS, "type": "TENSOR_AXIS_LABELS"})
    return DescriptionTable("TensorMetadata", {"name": tensor.name, "associated_files": [file]})
