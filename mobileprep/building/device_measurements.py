"""Import measurements of published models from devices, and write device profiles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from mobileprep.building.device_scripts import built_model, device_target
from mobileprep.core.arguments import FilePath, Warn, as_warning
from mobileprep.core.files import sha256_file, write_bytes, write_text
from mobileprep.errors import CorruptFileError, MobileprepError, UsageError
from mobileprep.freezing.loading import ModelOptions, load_model
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import ends
from mobileprep.inspection.costs import counted_run
from mobileprep.inspection.device_fit import fit_device, profile_text
from mobileprep.inspection.device_logs import DeviceLog, read_log
from mobileprep.inspection.measured_ops import measured_ops
from mobileprep.recipe.loading import load_recipes
from mobileprep.recipe.model import Recipe
from mobileprep.runtime.accounting.costs import NodeCost
from mobileprep.targets.measurements import (
    FACTS,
    MAX_BYTES,
    MeasuredOp,
    Measurement,
    measurement_bytes,
    measurement_from,
    read_measurement_file,
)
from mobileprep.targets.op_classes import class_costs
from mobileprep.targets.targets import Device

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
