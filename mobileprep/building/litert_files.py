"""Convert models to .tflite files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from msgspec import Struct

from mobileprep.core.arguments import FilePath, Warn, as_warning, names_of
from mobileprep.core.files import atomic_writer
from mobileprep.data.calibration.observation import Subject, check_tensors
from mobileprep.data.calibration.range_choice import calibrated
from mobileprep.data.calibration.shards import observed
from mobileprep.data.opening import open_dataset
from mobileprep.data.options import Method
from mobileprep.data.source import DataFiles, SampleChoice, data_inputs
from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.range_file import TensorRange, read_range_file
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.freezing.loading import computed_ends
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import placeholders
from mobileprep.graph.refs import Ref, edge, parse_ref
from mobileprep.graph.tensor_digests import tensor_digests
from mobileprep.inspection.benchmark import opened
from mobileprep.litert.convert import INTEGERS, MODES, CalibrationGraph, converted, to_calibrate
from mobileprep.litert.flex import flex_of
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.quantizing.kernels import END_TYPES, Integers
from mobileprep.recipe.settings import DetectionPostprocess
from mobileprep.recipe.validation_settings import BlockSize, Calibration
from mobileprep.runtime.engines.subgraph import folders_near, with_found_assets
from mobileprep.transforms.base import Context, make_transform
from mobileprep.transforms.quantize_nodes import WeightSettings

if TYPE_CHECKING:
    from mobileprep.graph.attrs import TensorShape
    from mobileprep.litert.convert import Mode
    from mobileprep.litert.quantizing.kernels import EndType


class ConversionResult(Struct, frozen=True):
    """The result of a conversion.

    Args:
        file: the .tflite file.
        size: its size in bytes.
        operators: number of operators.
        inputs: the tensors that are fed, in order.
        outputs: the tensors that are fetched, in order.
        flex: ops that require the Flex delegate, sorted; usually empty.
    """

    file: Path
    size: int
    operators: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flex: tuple[str, ...] = ()


def to_tflite(
    model: Graph | FilePath,
    path: FilePath,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    shapes: Mapping[str, TensorShape] | None = None,
    mode: Mode = "float",
    block_size: int = 0,
    calibration: FilePath | None = None,
    input_type: EndType = "float",
    output_type: EndType = "float",
    flex: bool = False,
    detection_postprocess: DetectionPostprocess = "keep",
    min_runtime: str = "",
    streaming: int | None = None,
    warn: Warn | None = None,
) -> ConversionResult:
    """Convert a model to a ``.tflite`` file, which is written atomically.

    Args:
        model: a graph, or the path of a model as ``freeze`` takes it, which is frozen first.
        path: the file to write.
        inputs: names of the tensors that are fed; by default the placeholders.
        outputs: names of the tensors that are fetched; by default the outputs of the signature, or
            the tensors without consumers.
        shapes: shapes of inputs by name, with -1 for dynamic sizes; other inputs have the shapes of
            the graph.
        mode: ``float``, ``float16``, ``weights``, ``int4``, ``int8``, or ``int16x8``, as the verb
            ``tflite`` describes them.
        block_size: with ``int4``, the number of weights that share a scale where LiteRT supports
            it: 32, 64, 128, or 256; 0 for one scale for each channel.
        calibration: a range file or samples for the integer modes.
        input_type: dtype of the inputs of an integer model.
        output_type: dtype of its outputs.
        flex: keep ops without a LiteRT operator for the Flex delegate.
        detection_postprocess: ``auto`` replaces the post-processing of an SSD model.
        min_runtime: the oldest release of TensorFlow Lite that must run the file, such as ``2.14``;
            empty for any.
        streaming: number of time steps of each call of a recurrent model, whose states become
            inputs and outputs; None for whole sequences.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Returns:
        The written file with its inputs, outputs, and operators.

    Raises:
        UsageError: a name is not in the graph, or options exclude each other.
        CorruptFileError: a file is missing or damaged.
        InvalidGraphError: the graph is malformed.
        UnsupportedError: LiteRT has no operator for a node.
        AccuracyError: the calibration does not match the model.
        ArtifactError: the file cannot be written.
    """
    warn = warn or as_warning
    _check_choice("mode", mode, MODES)
    _check_choice("input_type", input_type, END_TYPES)
    if block_size:
        _check_choice("block_size", block_size, get_args(BlockSize))
    _check_choice("output_type", output_type, END_TYPES)
    _check_choice("detection_postprocess", detection_postprocess, get_args(DetectionPostprocess))
    inputs, outputs = names_of(inputs), names_of(outputs)
    source = opened(model, outputs, warn)
    graph = with_found_assets(source.graph, folders_near(source.path))
    fed = tuple(map(source.tensor, inputs)) or tuple(placeholders(source.graph))
    fetched = source.tensors(outputs) or source.outputs or computed_ends(graph)
    where = str(source.path) if isinstance(model, Graph) else str(model)
    if not fetched:
        message = "no tensors are named that the model is to compute"
        raise UsageError(message, "give --outputs=a,b", where)
    known_shapes = {source.tensor(name): shape for name, shape in (shapes or {}).items()}
    specs = [CutInput(name, known_shapes.get(name)) for name in fed]
    if detection_postprocess == "auto":
        graph = _with_detections(graph, known_shapes, Context(fed, fetched))
    if block_size and mode != "int4":
        message = f"mode {mode} has no blocks of weights"
        raise UsageError(message, "give --mode=int4, or no --block_size", where)
    integers = None
    if mode in INTEGERS:
        ranges = {}
        if calibration is not None:
            run = partial(to_calibrate, graph, specs, fetched, flex=flex, where=where)
            measured = litert_ranges(Path(calibration), run, warn)
            is_sixteen = INTEGERS[mode] is DType.INT16
            ranges = {name: one.ends(is_sixteen=is_sixteen) for name, one in measured.items()}
        integers = Integers(INTEGERS[mode], ranges, input_type=input_type, output_type=output_type)
    elif calibration is not None or (input_type, output_type) != ("float", "float"):
        message = f"mode {mode} computes in float"
        raise UsageError(message, f"give --mode={' or '.join(INTEGERS)}, or no such flag", where)
    record = converted(
        graph,
        specs,
        fetched,
        mode=mode,
        integers=integers,
        weights=WeightSettings(4, block_size=block_size) if block_size else None,
        flex=flex,
        min_runtime=min_runtime,
        streaming=streaming,
        where=where,
        tell=warn,
    )
    target = Path(path)
    content = model_bytes(record, str(target))
    with atomic_writer(target) as stream:
        stream.write(content)
    operators = len(record.subgraphs[0].operators)
    (signature,) = record.signatures
    fed, fetched = (tuple(n for n, _ in ends) for ends in (signature.inputs, signature.outputs))
    return ConversionResult(target, len(content), operators, fed, fetched, flex_of(record))


def _check_choice(name: str, value: str | int, choices: Sequence[str | int]) -> None:
    if value not in choices:
        message = f"invalid {name} {value!r}"
        raise UsageError(message, f"expected one of {', '.join(map(str, choices))}")


def _with_detections(graph: Graph, shapes: Mapping[str, TensorShape], context: Context) -> Graph:
    """Replace the post-processing of a graph with TFLite_Detection_PostProcess."""
    sizes = {parse_ref(name).node: attr.shape(shape) for name, shape in shapes.items()}
    shaped = [
        n.with_attrs(shape=sizes[n.name]) if n.name in sizes and "shape" in n.attrs else n
        for n in graph
    ]
    replacing = make_transform("replace_detection_postprocess", {"required": True})
    return replacing.apply(graph.with_nodes(shaped), context).graph


_RANGE_FILES: Final = frozenset({".yaml", ".yml"})


def litert_ranges(
    calibration: Path, model: Callable[[], CalibrationGraph], warn: Callable[[str], None]
) -> Mapping[str, TensorRange]:
    """Return the ranges of tensors by name.

    Args:
        calibration: a range file of ``mobileprep calibrate``, or samples in an ``.npz`` file with
            an array for each input, on which ranges are measured with the default calibration of
            recipes.
        model: creates the graph to calibrate, if it is needed.
        warn: called with warnings about skipped samples or about a range file without digests.
    """
    if calibration.suffix.lower() not in _RANGE_FILES:
        return _measured(calibration, model(), warn)
    ranges = read_range_file(calibration)
    if any(tensor.graph for tensor in ranges.tensors.values()):
        graph = model()
        fed = [edge(parse_ref(name)) for name in graph.inputs]
        digests = tensor_digests(graph.graph, graph.tensors, fed)
        check_tensors(ranges, {str(Ref(*t)): d for t, d in digests.items()}, str(calibration))
    else:
        warn(f"{calibration}: the ranges have no digests, so they may be of another model")
    return ranges.tensors


def _measured(
    samples: Path, model: CalibrationGraph, warn: Callable[[str], None]
) -> Mapping[str, TensorRange]:
    usual = Calibration()
    method = Method(usual.method, usual.percentile, usual.decay)
    inputs = data_inputs(model.graph, model.inputs, {})
    choice = SampleChoice(usual.samples, usual.seed, usual.strict)
    data = open_dataset(DataFiles(str(samples), samples), inputs, choice)
    fetches = tuple(dict.fromkeys(str(Ref(*tensor)) for tensor in model.tensors))
    subject = Subject(
        model.graph,
        fetches,
        model.tensors,
        method,
        tuple(inputs),
        usual.batch,
        outputs=model.outputs,
    )
    measured = calibrated(subject, data, observed(subject, data, warn=warn))
    return {
        str(Ref(*tensor)): TensorRange(*ends, sixteen=measured.sixteen.get(tensor))
        for tensor, ends in measured.ranges.items()
    }
