"""Generate scripts that benchmark a model on a device."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.targets.integration.templating import environment
from mobileprep.targets.integration.texts import Code, shell_text

Tool: TypeAlias = Literal["litert", "tensorflow"]
MODEL_FILES: Final[Mapping[Tool, str]] = {"litert": "model.tflite", "tensorflow": "model.pb"}
"""Name of the model next to the script."""
LOG_PREFIX: Final = "mobileprep-log: "
"""Start of the log's lines in the output of an XCTest."""
_TITLES: Final[Mapping[Tool, str]] = {"litert": "LiteRT", "tensorflow": "TensorFlow"}
# Input dtypes that TensorFlow 1.15's benchmark_model can create.
_TENSORFLOW_TYPES: Final = {
    DType.FLOAT: "float",
    DType.INT32: "int32",
    DType.UINT8: "uint8",
    DType.QUINT8: "quint8",
    DType.BOOL: "bool",
    DType.STRING: "string",
}
_NIGHTLY: Final = (
    "https://storage.googleapis.com/tensorflow-nightly-public/prod/tensorflow/release/lite/tools/"
    "nightly/latest"
)
_NIGHTLY_KINDS: Final = {"android": ("aarch64", "arm"), "linux": ("aarch64", "arm", "x86-64")}
# Characters that separate names in flags, or end lines.
_UNSAFE: Final = re.compile(r"[,\x00-\x1f\x7f]")


class DeviceInput(Struct, frozen=True):
    """An input of a model.

    Args:
        name: name of the tensor.
        dtype: its dtype; None if the tool reads it from the model.
        shape: its sizes, with -1 for unknown sizes, which become 1.
    """

    name: str
    dtype: DType | None
    shape: tuple[int, ...]

    @property
    def is_open(self) -> bool:
        """Whether a size is unknown."""
        return any(size < 0 for size in self.shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes to run with."""
        return tuple(max(size, 1) if size < 0 else size for size in self.shape)


class DeviceModel(Struct, frozen=True, kw_only=True):
    """A model to benchmark on a device.

    Args:
        target: name of the target.
        platform: platform of the target.
        abis: names of its ABIs.
        tool: the benchmark_model that can run the model.
        sha256: digest of the model file.
        inputs: inputs in the order of the model.
        outputs: names of the outputs.
        init_ops: nodes to run once after loading.
        threads: default number of threads.
    """

    target: str
    platform: str
    abis: Sequence[str]
    tool: Tool
    sha256: str
    inputs: Sequence[DeviceInput]
    outputs: Sequence[str]
    init_ops: Sequence[str] = ()
    threads: int = 1


def known_shape(name: str, shape: TensorShape) -> tuple[int, ...]:
    """Return the shape of an input.

    Raises:
        UnsupportedError: its rank is unknown.
    """
    if shape is None:
        message = f"the input {name!r} has an unknown shape"
        raise UnsupportedError(message, "add its shape to 'inputs' of the recipe")
    return tuple(shape)


def device_files(model: DeviceModel) -> dict[str, str]:
    """Generate the files that benchmark a model: names and contents.

    - ``benchmark.sh`` for Android (adb) and Linux boards (ssh).
    - ``ModelBenchmark.swift`` or ``.mm``, an XCTest, and ``README.md`` for iOS.

    Raises:
        UnsupportedError: benchmark_model does not support a name or dtype of an input, or Jinja is
            not installed.
    """
    _check(model)
    templates = {"benchmark.sh": "device.sh"}
    if model.platform == "ios":
        ending = "swift" if model.tool == "litert" else "mm"
        templates = {f"ModelBenchmark.{ending}": f"device.{ending}", "README.md": "device.md"}
    variables = _variables(model)
    return {
        name: environment().get_template(template).render(variables)
        for name, template in templates.items()
    }


def _check(model: DeviceModel) -> None:
    names = (*(tensor.name for tensor in model.inputs), *model.outputs, *model.init_ops)
    for name in names:
        if _UNSAFE.search(name):
            message = f"benchmark_model does not support the name {name!r}"
            raise UnsupportedError(
                message, "rename the tensor without commas and control characters"
            )
    for tensor in model.inputs:
        if model.tool == "tensorflow" and tensor.dtype not in _TENSORFLOW_TYPES:
            kind = "unknown" if tensor.dtype is None else tensor.dtype.name.lower()
            message = f"TensorFlow's benchmark_model does not support {kind}, as {tensor.name!r} is"
            raise UnsupportedError(message, "choose a later node as the input of the model")


def _variables(model: DeviceModel) -> dict[str, Any]:
    android = model.platform == "android"
    numbered = enumerate(model.inputs)
    return {
        "target": model.target,
        "android": android,
        "lite": model.tool == "litert",
        "tool": Code(model.tool),
        "tool_title": Code(_TITLES[model.tool]),
        "model_file": Code(MODEL_FILES[model.tool]),
        "harness": Code(f"ModelBenchmark.{'swift' if model.tool == 'litert' else 'mm'}"),
        "prefix": Code(LOG_PREFIX),
        "sha256": Code(model.sha256),
        "threads": model.threads,
        "work": Code("/data/local/tmp" if android else "/tmp"),
        "abis": Code(", ".join(model.abis)),
        "abi_pattern": Code(" | ".join(f"*,{abi},*" for abi in model.abis)),
        "benchmark_hint": Code(_benchmark_hint(model)),
        "flags": list(_flags(model)),
        "resized": [{"index": i, "shape": t.sizes} for i, t in numbered if t.is_open],
        "inputs": [
            {"name": t.name, "enum": Code(t.dtype.name if t.dtype else ""), "shape": t.sizes}
            for t in model.inputs
        ],
        "outputs": list(model.outputs),
        "init_ops": list(model.init_ops),
    }


def _flags(model: DeviceModel) -> Iterator[Code]:
    """Yield the flags of benchmark_model, quoted. ``$1`` are threads, and ``$2`` runs."""
    yield Code(f"--graph={MODEL_FILES[model.tool]}")
    yield Code('--num_threads="$1"')
    names = ",".join(tensor.name for tensor in model.inputs)
    shapes = ":".join(",".join(map(str, tensor.sizes)) for tensor in model.inputs)
    layers = [shell_text(f"--input_layer={names}"), shell_text(f"--input_layer_shape={shapes}")]
    if model.tool == "litert":
        yield Code('--num_runs="$2"')
        yield Code("--enable_op_profiling=true")
        if any(tensor.is_open for tensor in model.inputs):
            yield from layers
        return
    yield Code('--max_num_runs="$2"')
    yield Code("--show_flops=true")
    yield from layers
    types = ",".join(_TENSORFLOW_TYPES[t.dtype] for t in model.inputs if t.dtype is not None)
    yield shell_text(f"--input_layer_type={types}")
    yield shell_text(f"--output_layer={','.join(model.outputs)}")
    if model.init_ops:
        yield shell_text(f"--init_ops={','.join(model.init_ops)}")


def _benchmark_hint(model: DeviceModel) -> str:
    """Return how to get benchmark_model for the target."""
    if model.tool == "tensorflow":
        config = " --config=android_arm64" if model.platform == "android" else ""
        return (
            f"in TensorFlow 1.15, run 'bazel build -c opt{config} "
            "tensorflow/tools/benchmark:benchmark_model', and set BENCHMARK_MODEL to its output"
        )
    system = "android" if model.platform == "android" else "linux"
    files = " or ".join(f"{system}_{kind}_benchmark_model" for kind in _NIGHTLY_KINDS[system])
    return f"download {files} from {_NIGHTLY}, and set BENCHMARK_MODEL to it"
