"""Convert the checked sections of a target into dataclasses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from msgspec.structs import replace

from mobileprep.data.options import Reading
from mobileprep.freezing.settings import Freeze
from mobileprep.recipe.checks import SOURCE_KINDS
from mobileprep.recipe.data import resolve_data, resolve_device
from mobileprep.recipe.files import input_file
from mobileprep.recipe.metrics import resolve_budget
from mobileprep.recipe.model import (
    ParameterValue,
    Plugin,
    Step,
    StepFile,
    Target,
    integration_of,
    protection_of,
)
from mobileprep.recipe.plugins import named_plugin
from mobileprep.recipe.schemas import TransformSchemas, name_faults, recipe_schema
from mobileprep.recipe.sections import TargetSections
from mobileprep.recipe.settings import (
    Cache,
    Check,
    CustomOp,
    Data,
    InputFile,
    InputSpec,
    Pin,
    Source,
    SourceKind,
)
from mobileprep.recipe.steps import ReadSteps, read_steps
from mobileprep.recipe.tree import (
    MappingNode,
    Node,
    Plain,
    Problem,
    Scalar,
    Sequence,
    place_of,
    plain,
)
from mobileprep.recipe.validation import resolve_validation
from mobileprep.recipe.validation_settings import (
    LITERT_MODES,
    QUANTIZERS,
    Calibration,
    Quantize,
    QuantizeRule,
)

_QUANTIZE_PARAMETERS = {parameter for _, parameter in QUANTIZERS.values()}
# The TensorFlow release that does not pad 8-bit tensors; the default of quantize_nodes.
_WITHOUT_PADS = "1.15"
# Repairs that run the graph on samples.
_MEASURING = ("absorb_high_biases", "correct_bias")
_PLAIN_KEYS = (
    *("platform", "abis", "artifact", "outputs", "engine", "flex"),
    *("quantization_report", "migration_report"),
)


class Chains:
    """Read chains of transforms; each only once, even if several targets share it."""

    def __init__(self, schemas: TransformSchemas) -> None:
        self._schemas = schemas
        self._read: dict[int, tuple[Node, ReadSteps]] = {}

    def read(self, node: Node | None) -> ReadSteps:
        """Return the steps of a ``transforms`` or ``then`` section."""
        if node is None:
            return ReadSteps()
        # Keep a reference to the node, so that its id is not reused.
        if id(node) not in self._read:
            self._read[id(node)] = node, read_steps(node, self._schemas)
        return self._read[id(node)][1]


def plugins_of(root: MappingNode) -> tuple[Plugin, ...]:
    """Return the plugins that a recipe names; skip invalid values, which the schema reports."""
    return tuple(named_plugin(_file(item)) for item in _plugin_files(root))


def plugin_problems(root: MappingNode) -> list[Problem]:
    """Report plugins of a recipe that would not run."""
    places = {str(item.place): item.place for item in _plugin_files(root)}
    return [
        Problem(places[plugin.file.place], message, hint)
        for plugin, message, hint in name_faults(plugins_of(root))
    ]


def _plugin_files(root: MappingNode) -> list[Scalar]:
    listed = root.get("plugins")
    return [
        item
        for item in (listed.items if isinstance(listed, Sequence) else ())
        if isinstance(item, Scalar) and isinstance(item.value, str) and "\0" not in item.value
    ]


def cache_of(root: MappingNode) -> Cache | None:
    """Return the remote cache of a valid recipe."""
    cache = root.get("cache")
    return Cache(**plain(cache)) if isinstance(cache, MappingNode) else None


def resolve_target(sections: TargetSections, chains: Chains) -> Target:
    """Return the target that valid sections describe."""
    quantize = _quantize(sections.get("quantize"))
    device, device_file = resolve_device(sections)
    optional = {
        key: value
        for key, value in _hashable(sections.tree).items()
        if key in _PLAIN_KEYS and value is not None
    }
    return Target(
        name=sections.name,
        folder=sections.folder,
        model=sections.model,
        source=_source(sections.section("source")),
        freeze=Freeze(**_hashable(sections.section("freeze"))),
        inputs=_inputs(sections.section("inputs")),
        transforms=_transforms(sections, quantize, chains),
        check=_check(sections.get("check")),
        calibration=_calibration(sections.mapping("calibration")),
        validation=resolve_validation(sections.mapping("validation")),
        quantize=quantize,
        ops=_custom_ops(sections.section("ops")),
        min_runtime=plain(sections.section("litert")).get("min_runtime", ""),
        integration=integration_of(sections.mapping("integration")),
        protect=protection_of(sections.mapping("protect")),
        budget=resolve_budget(sections),
        device=device,
        device_file=device_file,
        tree=sections.tree,
        **optional,
        **_registration(plain(sections.section("registration"))),
    )


def _hashable(mapping: MappingNode) -> dict[str, Any]:
    """Return plain values by key, with lists as tuples."""
    values = plain(mapping)
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def _plain(sections: TargetSections, key: str) -> Plain:
    node = sections.get(key)
    return None if node is None else plain(node)


def _source(source: MappingNode) -> Source:
    kind = cast(SourceKind, next(kind for kind in SOURCE_KINDS if kind in source.entries))
    file = _file(source.get(kind))
    checkpoint = source.get("checkpoint")
    prefix = _file(checkpoint) if checkpoint is not None else _beside(kind, file)
    values = plain(source)
    saver, pins, assets = source.get("saver"), source.get("sha256"), source.get("assets")
    return Source(
        kind,
        file,
        prefix,
        tuple(values.get("tags", ())),
        values.get("signature"),
        _file(saver) if saver is not None else None,
        _pins(pins) if isinstance(pins, MappingNode) else (),
        _file(assets) if assets is not None else None,
    )


def _beside(kind: SourceKind, file: InputFile) -> InputFile | None:
    """Return the checkpoint that a saver writes next to a MetaGraph of the same name."""
    name = file.name.removesuffix(".meta")
    if kind != "meta_graph" or name == file.name:
        return None
    return InputFile(name, file.path.with_suffix(""), file.place)


def _pins(pins: MappingNode) -> tuple[Pin, ...]:
    return tuple(
        Pin(
            InputFile(name, entry.key_place.source.folder / name, str(entry.key_place)),
            plain(entry.value).lower(),
        )
        for name, entry in sorted(pins.items())
    )


def _file(node: Node | None) -> InputFile:
    return input_file(cast(Scalar, node))


def _inputs(inputs: MappingNode) -> tuple[InputSpec, ...]:
    specs = []
    for name, spec in plain(inputs).items():
        given = spec or {}
        shape = given.get("shape")
        sizes = tuple(int(size) for size in shape) if shape is not None else None
        specs.append(InputSpec(name, given.get("dtype"), sizes))
    return tuple(specs)


def _check(node: Node | None) -> Check | None:
    if not isinstance(node, MappingNode):
        return Check() if node is not None and plain(node) else None
    given = plain(node)
    data, limit = node.get("data"), given.get("max_difference")
    return Check(
        None if data is None else resolve_data(data),
        int(given.get("samples", Check().samples)),
        None if limit is None else float(limit),
        given.get("engine"),
    )


def _calibration(calibration: MappingNode | None) -> Calibration | None:
    if calibration is None:
        return None
    given: dict[str, Any] = plain(calibration)
    data, ranges = calibration.get("data"), calibration.get("range_file")
    if data is not None:
        given["data"] = resolve_data(data)
    if ranges is not None:
        given["range_file"] = _file(ranges)
    for key in given.keys() & {"percentile", "decay"}:
        given[key] = float(given[key])
    for key in given.keys() & {"samples", "seed", "batch", "workers"}:
        given[key] = int(given[key])  # 1e3 is a whole number too
    return Calibration(**given)


def _quantize(node: Node | None) -> Quantize:
    if node is None:
        return Quantize()
    if isinstance(node, Scalar):
        return Quantize(plain(node))
    given: dict[str, Any] = plain(node)
    parameters = tuple((key, int(given.pop(key))) for key in given.keys() & _QUANTIZE_PARAMETERS)
    given.pop("repair", None)
    for key in given.keys() & {"bits", "trials"}:
        given[key] = None if given[key] is None else int(given[key])
    rules = tuple(_rule(rule) for rule in given.pop("rules", ()))
    return Quantize(**given, parameters=parameters, rules=rules)


def _rule(given: dict[str, Any]) -> QuantizeRule:
    ops = tuple(given.pop("ops", ()))
    if "bits" in given:
        given["bits"] = int(given["bits"])
    return QuantizeRule(**given, ops=ops)


def _registration(registration: dict[str, Any]) -> dict[str, Any]:
    resolved = {"allow": tuple(registration.get("allow", ()))}
    versions = registration.get("tensorflow")
    if versions is not None:
        resolved["registration"] = _listed(versions)
    return resolved


def _custom_ops(ops: MappingNode) -> tuple[CustomOp, ...]:
    found = []
    for name, entry in sorted(ops.items()):
        if not isinstance(entry.value, MappingNode):
            continue
        sources = entry.value.get("source")
        files = sources.items if isinstance(sources, Sequence) else [sources] if sources else []
        kernels = _listed(plain(entry.value)["kernel"])
        found.append(CustomOp(name, kernels, tuple(map(_file, files))))
    return tuple(found)


def _listed(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _transforms(sections: TargetSections, quantize: Quantize, chains: Chains) -> tuple[Step, ...]:
    """Return the shared or own chain, then ``then``, ``litert``, repair, quantize, obfuscate, sort.

    Sorting is last because the other steps may move nodes.
    """
    steps = [*chains.read(sections.get("transforms")).steps]
    steps += chains.read(sections.get("then")).steps
    if plain(sections.section("litert")).get("detection_postprocess") == "auto":
        required = ("required", True)
        steps.append(_asked_by(sections, "litert", "replace_detection_postprocess", required))
    steps += _quantizing(sections, quantize, chains)
    protected = protection_of(sections.mapping("protect")).obfuscate
    if protected or _plain(sections, "obfuscate"):
        key = "protect" if protected else "obfuscate"
        steps.append(_asked_by(sections, key, "obfuscate_names"))
    if _plain(sections, "sort"):
        steps.append(_asked_by(sections, "sort", "sort_by_execution_order"))
    return tuple(steps)


def repair_chain(sections: TargetSections) -> Node | None:
    """Return the transforms that ``quantize`` names to prepare the float graph."""
    quantize = sections.get("quantize")
    return quantize.get("repair") if isinstance(quantize, MappingNode) else None


def _quantizing(sections: TargetSections, quantize: Quantize, chains: Chains) -> Iterator[Step]:
    if quantize.mode in LITERT_MODES and _plain(sections, "artifact") == "tflite":
        # The package stage quantizes when it writes the file.
        yield from _repairing(sections, chains)
    elif quantize.mode in QUANTIZERS:
        yield _storing(sections, quantize)
    elif quantize.mode in ("nodes", "auto"):
        yield from _repairing(sections, chains)
        is_auto = quantize.mode == "auto"
        ranges = "observed" if is_auto else quantize.ranges
        params: list[tuple[str, ParameterValue]] = [("ranges", ranges)]
        releases = _registration(plain(sections.section("registration"))).get("registration", ())
        if releases and _WITHOUT_PADS not in releases:
            params.append(("tensorflow", min(releases)))
        if quantize.rules:
            params.append(("rule", tuple(rule.text for rule in quantize.rules)))
        step = _asked_by(sections, "quantize", "quantize_nodes", *params)
        has_ranges = ranges == "observed" or (
            ranges == "trained" and sections.mapping("calibration") is not None
        )
        yield replace(step, takes_ranges=has_ranges, trials=quantize.trials if is_auto else 0)


def _repairing(sections: TargetSections, chains: Chains) -> Iterator[Step]:
    """Yield the steps of ``repair``; steps that measure use the calibration data by default."""
    calibration = _calibration(sections.mapping("calibration"))
    data = None if calibration is None else calibration.data
    earlier = [*chains.read(sections.get("transforms")).steps]
    earlier += chains.read(sections.get("then")).steps
    repairs = chains.read(repair_chain(sections)).steps
    # With the statistics of batch norms, repairs do not need data.
    has_statistics = any(step.options.get("keep_statistics") for step in (*earlier, *repairs))
    if data is None or has_statistics or not _is_arrays(data):
        yield from repairs
        return
    for step in repairs:
        if step.name in _MEASURING and "data" not in step.options:
            file = StepFile("data", None, "path", data.file)
            params = (*step.params, ("data", data.file.name))
            yield replace(step, params=params, files=(*step.files, file))
        else:
            yield step


def _is_arrays(data: Data) -> bool:
    """Return whether the data is a file of arrays with the names of the inputs."""
    is_named = data.kind in ("npz", "npy") or data.file.name.endswith((".npz", ".npy"))
    return is_named and data.reading == Reading()


def _storing(sections: TargetSections, quantize: Quantize) -> Step:
    """Return the step that stores constants in fewer bits, or rounds them."""
    name, parameter = QUANTIZERS[quantize.mode]
    params: list[tuple[str, ParameterValue]] = [
        (parameter, dict(quantize.parameters).get(parameter, _quantize_default(parameter)))
    ]
    if quantize.mode in ("float16", "bfloat16"):
        params.append(("type", quantize.mode))
    given = [("bits", quantize.bits), ("granularity", quantize.granularity)]
    finer = [(key, value) for key, value in given if value is not None]
    if finer:
        name = "linear_quantize_weights"
    return _asked_by(sections, "quantize", name, *params, *finer)


def _quantize_default(parameter: str) -> int:
    """Return the default of the transform's parameter, which the schema contains."""
    keys = recipe_schema()["$defs"]["quantize"]["else"]["properties"]
    return int(keys[parameter]["default"])


def _asked_by(
    sections: TargetSections, key: str, name: str, *params: tuple[str, ParameterValue]
) -> Step:
    """Return the step that a key of the recipe adds."""
    return Step(name, params, place=str(place_of(sections.tree, (key,))))
