"""Scripts that measure targets on devices, and the results of their runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from mobileprep.building.pipeline.publish import MANIFEST, read_manifest
from mobileprep.building.report_files import model_file, stored_reports
from mobileprep.building.targets import REPORT
from mobileprep.core.arguments import FilePath, Warn, as_warning
from mobileprep.core.files import inside, place, sha256_file, view_file, write_bytes, write_text
from mobileprep.errors import (
    CorruptFileError,
    MobileprepError,
    UnsupportedError,
    UsageError,
    nearest_hint,
)
from mobileprep.formats.tflite.reader import read_model
from mobileprep.freezing.loading import ModelOptions, computed_ends, load_model
from mobileprep.graph.files import read_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.op_sets import FEEDABLE
from mobileprep.graph.reachability import ends
from mobileprep.inspection.costs import counted_run
from mobileprep.inspection.device_fit import fit_device, profile_text
from mobileprep.inspection.device_logs import DeviceLog, OpTime, read_log
from mobileprep.recipe.load import load_recipes
from mobileprep.recipe.model import Recipe, Target
from mobileprep.runtime.accounting.costs import NodeCost
from mobileprep.runtime.sampling.inputs import fed_tensors
from mobileprep.targets.integration.device_script import (
    MODEL_FILES,
    DeviceInput,
    DeviceModel,
    device_files,
    known_shape,
)
from mobileprep.targets.measurements import (
    FACTS,
    MAX_BYTES,
    MeasuredOp,
    Measurement,
    measurement_bytes,
    measurement_from,
    read_measurement_file,
)
from mobileprep.targets.op_classes import HEAVY_CLASSES, ClassCost, class_costs, op_class
from mobileprep.targets.targets import Device, platform_named

FOLDER: Final = "measurements"
"""Directory of measurements, next to the recipe."""
_MAX_NAME: Final = 60


class ImportedMeasurement(Struct, frozen=True):
    """A stored measurement.

    Args:
        path: file of the measurement.
        measurement: the measurement.
    """

    path: Path
    measurement: Measurement


def import_measurement(
    log: FilePath,
    recipe: Recipe | FilePath,
    *,
    out: FilePath = "out",
    facts: Mapping[str, str] | None = None,
    warn: Warn | None = None,
) -> ImportedMeasurement:
    """Store the measurement in a log as ``measurements/TARGET-DEVICE.json`` next to the recipe.

    Args:
        log: output of ``benchmark_model``, ``litert-benchmark``, or a profiler. Lines
            ``mobileprep: key=value`` give the facts, as scripts of ``device script`` print them.
        recipe: recipe of the model, or its path.
        out: output directory of the build, with the model that ran.
        facts: ``target``, ``device``, ``build``, ``threads``, ``governor``, ``date``, and
            ``tool``, which replace those in the log.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Raises:
        CorruptFileError: the log cannot be read or has no timings.
        UsageError: the device is not named, the target does not exist or is not built, or the log
            is of another model.
    """
    warn = warn or as_warning
    read = read_log(Path(log))
    (loaded,) = load_recipes(recipe)
    details = dict.fromkeys(FACTS, "") | dict(read.facts) | dict(facts or {})
    target = device_target(loaded, details["target"])
    if not details["device"]:
        message = "the log does not name the device"
        raise UsageError(message, "pass its name with --device", str(log))
    model = built_model(loaded, target, out)
    digest = sha256_file(model)
    if details["sha256"] not in ("", digest):
        message = (
            f"the log is of a model with SHA-256 {details['sha256']}, and {model} has {digest}"
        )
        raise UsageError(
            message, "measure the published model, or build the measured one", str(log)
        )
    if not read.mean_ms:
        message = "the mean time of a run is 0 ms"
        hint = "use a tool that prints microseconds, such as benchmark_model"
        raise CorruptFileError(message, hint, str(log))
    graph, nodes = _costs(model, warn)
    measurement = Measurement(
        target.folder,
        details["device"],
        details["build"],
        details["governor"],
        details["date"],
        details["tool"] or read.format,
        digest,
        read.mean_ms,
        _threads(details["threads"]),
        read.std_ms,
        read.min_ms,
        read.runs,
        read.memory_mb,
        read.delegates,
        class_costs(nodes),
        _ops(read, graph, nodes),
    )
    data = measurement_bytes(measurement)
    measurement_from(data[: MAX_BYTES + 1], str(log))  # the bounds that builds check
    name = f"{_file_name(target.folder)}-{_file_name(details['device'])}.json"
    path = Path(loaded.file).parent / FOLDER / name
    path.parent.mkdir(exist_ok=True)
    write_bytes(path, data)
    return ImportedMeasurement(path, measurement)


def fit_profile(measurements: Sequence[FilePath], profile: FilePath) -> Device:
    """Fit the rates of a device to measurements, and write them as a profile for recipes.

    Args:
        measurements: files of ``import_measurement``, of one device.
        profile: the ``.yaml`` file to write.

    Raises:
        CorruptFileError: a file cannot be read or is not a measurement.
        UsageError: see ``fit_device``; also if the extension is not that of a profile.
    """
    path = Path(profile)
    if path.suffix.lower() not in (".yaml", ".yml"):
        message = f"a profile has the extension .yaml, not {path.suffix!r}"
        raise UsageError(message, f"write {path.stem}.yaml", str(path))
    device = fit_device([read_measurement_file(Path(m)) for m in measurements], path.stem)
    write_text(path, profile_text(device))
    return device


def _costs(model: Path, warn: Warn) -> tuple[Graph, tuple[NodeCost, ...]]:
    """Return the graph of a model and the costs of its nodes; nothing if they are unknown."""
    try:
        loaded = load_model(model, ModelOptions(), warn)
        graph = loaded.graph
        feeds = {n.name: n.attr_shape("shape") for n in graph if n.op == "Placeholder"}
        outputs = [loaded.tensor(name) for name in loaded.outputs] or ends(graph)
        run = counted_run(graph, outputs, feeds, where=str(model))
    except MobileprepError as error:
        warn(f"{model}: the costs of its ops are unknown, so no profile can be fitted: {error}")
        return Graph(()), ()
    return run.graph, run.costs.nodes


def _ops(log: DeviceLog, graph: Graph, nodes: Sequence[NodeCost]) -> tuple[MeasuredOp, ...]:
    constants = {node.name for node in graph if node.op == "Const"}
    return measured_ops([op for op in log.ops if op.name not in constants], graph, nodes)


def _threads(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= 4096:
        message = f"invalid number of threads {text!r}: expected 1 to 4096"
        raise UsageError(message, "pass --threads 4")
    return int(text)


def _file_name(name: str) -> str:
    """Return a name of letters, digits, and dashes: ``pixel-3``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_MAX_NAME] or "device"


# Nodes between a fused op, which has the name of its last node, and its convolution or product.
_MAX_FUSED: Final = 8
# XNNPACK computes convolutions with windows of one element as products.
_INTERCHANGEABLE: Final = frozenset({"convolution", "product"})


def measured_ops(
    ops: Sequence[OpTime], graph: Graph, nodes: Sequence[NodeCost]
) -> tuple[MeasuredOp, ...]:
    """Return the ops of a log with the costs of their nodes, as far as they match.

    TensorFlow names nodes, and fused ops by their last node. LiteRT's delegates number their ops in
    the order of the model: convolutions and products match in this order if their numbers agree.
    """
    by_name = {node.name: node for node in nodes}
    matches = [_named(op, graph, by_name) for op in ops]
    if not any(matches):
        matches = _in_order(ops, nodes)
    return tuple(
        MeasuredOp(op.op, op.name, op.ms, None if node is None else _cost(node))
        for op, node in zip(ops, matches, strict=True)
    )


def _cost(node: NodeCost) -> ClassCost:
    return class_costs([node])[0]


def _named(op: OpTime, graph: Graph, costs: Mapping[str, NodeCost]) -> NodeCost | None:
    """Return the node of an op, which may be fused with others that follow it."""
    node, kind = graph.get(op.name), op_class(op.op)
    for _ in range(_MAX_FUSED):
        if node is None:
            return None
        if node.name in costs and op_class(node.op) == kind:
            return costs[node.name]
        if kind not in HEAVY_CLASSES or not node.data_inputs:
            return None
        node = graph.get(node.data_inputs[0].node)
    return None


def _in_order(ops: Sequence[OpTime], nodes: Sequence[NodeCost]) -> list[NodeCost | None]:
    """Return the convolution or product of each op; None for other ops, or if numbers differ."""
    places = [i for i, op in enumerate(ops) if op_class(op.op) in HEAVY_CLASSES and op.count == 1]
    heavy = [node for node in nodes if op_class(node.op) in HEAVY_CLASSES]
    matches: list[NodeCost | None] = [None] * len(ops)
    pairs = list(zip(places, heavy, strict=False))
    kinds = ({op_class(ops[i].op), op_class(node.op)} for i, node in pairs)
    if len(places) != len(heavy) or not all(len(k) == 1 or k == _INTERCHANGEABLE for k in kinds):
        return matches
    for index, node in pairs:
        matches[index] = node
    return matches


def device_script(
    recipe: Recipe | FilePath, folder: FilePath, *, target: str = "", out: FilePath = "out"
) -> list[Path]:
    """Write the files that benchmark a built target on a device, with a copy of its model.

    Args:
        recipe: the recipe, or its path.
        folder: directory to write to.
        target: name of the target; optional if the recipe has only one.
        out: output directory of the build.

    Returns:
        The written files.

    Raises:
        UsageError: the target does not exist, or the recipe has several.
        CorruptFileError: the target is not built, or its model was changed.
        UnsupportedError: benchmark_model cannot run the model.
    """
    (recipe,) = load_recipes(recipe)
    chosen = device_target(recipe, target)
    if chosen.protect.key is not None:
        message = "benchmark_model cannot load an encrypted model"
        hint = "benchmark a target without 'protect: {encrypt: ...}'"
        raise UnsupportedError(message, hint, chosen.place(("protect",)))
    path = built_model(recipe, chosen, out)
    model = (_lite_model if chosen.artifact == "tflite" else _graph_model)(chosen, path)
    files = device_files(model)
    copy = Path(folder) / MODEL_FILES[model.tool]
    place(path, copy)
    for name, text in files.items():
        write_text(Path(folder) / name, text)
    return [copy, *(Path(folder) / name for name in files)]


def device_target(recipe: Recipe, name: str = "") -> Target:
    """Return the target of a name or directory; optional if the recipe has only one.

    Raises:
        UsageError: the target does not exist, or the recipe has several.
    """
    targets = recipe.chosen([name] if name else [])
    if len(targets) == 1:
        return targets[0]
    names = [target.folder for target in recipe.targets]
    if targets:
        message = f"the recipe has {len(names)} targets"
        raise UsageError(message, f"add --target with one of {', '.join(names)}", recipe.file)
    message = f"there is no target {name!r}"
    hint = nearest_hint(name, names) or f"the targets are {', '.join(names)}"
    raise UsageError(message, hint, recipe.file)


def built_model(recipe: Recipe, target: Target, out: FilePath) -> Path:
    """Return the published model file of a target.

    Raises:
        CorruptFileError: the target is not built, or the file differs from the manifest.
    """
    folder = inside(Path(out) / recipe.name, target.folder)
    if not (folder / MANIFEST).is_file():
        message = "the target is not built"
        raise CorruptFileError(message, "run 'mobileprep build' first", str(folder))
    manifest = read_manifest(folder)
    (report,) = stored_reports(folder / REPORT)
    path = model_file(report)
    if path is None or manifest.files.get(path.name) != sha256_file(path):
        message = f"the model {report.report.model.file!r} differs from the manifest"
        raise CorruptFileError(message, "run 'mobileprep build' again", str(folder))
    return path


def _lite_model(target: Target, path: Path) -> DeviceModel:
    graph = read_model(view_file(path), str(path)).subgraphs[0]
    tensors = [graph.tensors[number] for number in graph.inputs]
    return _model(
        target, path, [DeviceInput(t.name, None, t.signature or t.shape) for t in tensors], []
    )


def _graph_model(target: Target, path: Path) -> DeviceModel:
    if target.artifact != "frozen":
        message = f"TensorFlow's benchmark_model does not load 'artifact: {target.artifact}'"
        raise UnsupportedError(
            message, "benchmark a target with 'artifact: frozen'", target.place()
        )
    graph = read_graph(path)
    declared = {spec.name: spec.shape for spec in target.inputs}
    names = declared or [node.name for node in graph if node.op in FEEDABLE]
    inputs = [
        DeviceInput(tensor.name, tensor.dtype, known_shape(tensor.name, tensor.shape))
        for tensor in fed_tensors(graph, names, declared)
    ]
    outputs = target.outputs or computed_ends(graph)
    init_ops = [name for name in ends(graph) if name not in computed_ends(graph)]
    return _model(target, path, inputs, outputs, init_ops)


def _model(
    target: Target,
    path: Path,
    inputs: Sequence[DeviceInput],
    outputs: Sequence[str],
    init_ops: Sequence[str] = (),
) -> DeviceModel:
    platform = platform_named(target.platform)
    return DeviceModel(
        target=target.name,
        platform=target.platform,
        abis=[abi.name for abi in platform.abis_named(target.abis)],
        tool="litert" if target.artifact == "tflite" else "tensorflow",
        sha256=sha256_file(path),
        inputs=inputs,
        outputs=outputs,
        init_ops=init_ops,
        threads=(target.integration and target.integration.threads) or 1,
    )
