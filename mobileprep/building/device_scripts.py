"""Write scripts that benchmark published models on devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mobileprep.building.pipeline.publish import MANIFEST, read_manifest
from mobileprep.building.report_files import model_file, stored_reports
from mobileprep.building.targets import REPORT
from mobileprep.core.arguments import FilePath
from mobileprep.core.files import inside, place, sha256_file, view_file, write_text
from mobileprep.errors import CorruptFileError, UnsupportedError, UsageError, nearest_hint
from mobileprep.formats.tflite.reader import read_model
from mobileprep.freezing.loading import computed_ends
from mobileprep.graph.files import read_graph
from mobileprep.graph.op_sets import FEEDABLE
from mobileprep.graph.reachability import ends
from mobileprep.recipe.loading import load_recipes
from mobileprep.recipe.model import Recipe, Target
from mobileprep.runtime.sampling.inputs import fed_tensors
from mobileprep.targets.integration.device_script import (
    MODEL_FILES,
    DeviceInput,
    DeviceModel,
    device_files,
    known_shape,
)
from mobileprep.targets.targets import platform_named


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
