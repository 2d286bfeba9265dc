"""Resolve the sections of a target to a typed ``Target``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from mobileprep.data.options import Reading
from mobileprep.recipe.decode import NO_SOURCE, Decoder
from mobileprep.recipe.model import ParameterValue, Step, StepFile, Target
from mobileprep.recipe.schemas import TransformSchemas, recipe_schema
from mobileprep.recipe.sections import TargetSections
from mobileprep.recipe.settings import (
    Check,
    CustomOp,
    Data,
    InputFile,
    InputSpec,
    LiteRT,
    Source,
    Streaming,
)
from mobileprep.recipe.steps import ReadSteps, read_steps
from mobileprep.recipe.tree import MappingNode, Node, Problem, Scalar, Sequence, find, place_of
from mobileprep.recipe.validation_settings import (
    LITERT_MODES,
    QUANTIZERS,
    NamedValidation,
    Quantize,
    Validation,
)

# The TensorFlow release that does not pad 8-bit tensors; the default of quantize_nodes.
_WITHOUT_PADS: Final = "1.15"
# Repairs that run the graph on samples.
_MEASURING: Final = ("absorb_high_biases", "correct_bias", "reconstruct_weights")
# Options of transforms that store weights, and of reconstruct_weights.
_STEPS: Final = ("bits", "granularity", "minimum_size")
# Modes of LiteRT files with 8-bit activations, whose channels equalize_ranges measures.
_EIGHT_BITS: Final = ("int8", "auto")
# Fields of a target for the keys of its section ``registration``.
_REGISTRATION: Final = {"tensorflow": "registration", "allow": "allow"}
# Modes that store weights in floating point, where every difference from the previous model counts.
_FLOATS: Final = ("none", "float16", "bfloat16")
# Steps that choose the scale of each constant.
_SCALING: Final = frozenset(
    {"quantize_weights", "linear_quantize_weights", "quantize_nodes", "cast_weights"}
)
_CHAINS: Final = (("transforms",), ("then",), ("quantize", "repair"))


class Chains:
    """Read chains of transforms; each only once, even if several targets share it."""

    def __init__(self, schemas: TransformSchemas) -> None:
        self._schemas = schemas
        self._read: dict[int, tuple[Node, ReadSteps]] = {}

    def read(self, tree: MappingNode, *keys: str) -> ReadSteps:
        """Return the steps of a chain of a target, such as ``transforms``."""
        node = find(tree, keys)
        if node is None:
            return ReadSteps()
        # Keep a reference to the node, so that its id is not reused.
        if id(node) not in self._read:
            self._read[id(node)] = node, read_steps(node, self._schemas)
        return self._read[id(node)][1]

    def problems(self, tree: MappingNode) -> Iterator[Problem]:
        """Yield the problems of all chains of a target."""
        for keys in _CHAINS:
            yield from self.read(tree, *keys).problems


def resolve_target(sections: TargetSections, decoder: Decoder, chains: Chains) -> Target:
    """Return the target that sections describe, without its device and measurement.

    Values that do not fit their types have their defaults.
    """
    tree = sections.tree
    registration = sections.nodes("registration")
    check: Node | Check | None = tree.get("check")
    if isinstance(check, Scalar):
        check = Check() if check.value is True else None
    streaming: Node | Streaming | None = tree.get("streaming")
    if isinstance(streaming, Scalar):
        streaming = Streaming() if streaming.value is True else None
    validation = tree.get("validation")
    is_list = isinstance(validation, Sequence)
    kinds = tuple[NamedValidation, ...] if is_list else tuple[Validation, ...]
    litert = decoder.struct(LiteRT, sections.nodes("litert"))
    target = decoder.struct(
        Target,
        {
            **tree.without(["registration", "transforms"]).nodes(),
            **{
                _REGISTRATION[key]: registration[key] for key in _REGISTRATION.keys() & registration
            },
            "name": sections.name,
            "folder": sections.folder,
            "model": sections.model,
            "source": decoder.attempt(tree.get("source"), Source, NO_SOURCE),
            "inputs": tuple(_inputs(sections.nodes("inputs"), decoder)),
            "check": check,
            "streaming": streaming,
            "validations": decoder.attempt(validation, kinds, ()),
            "ops": tuple(_custom_ops(sections.nodes("ops"), decoder)),
            "min_runtime": litert.min_runtime,
            "device": None,
            "measurement": None,
        },
    )
    steps = _transforms(target, tree, litert, chains)
    return replace(target, transforms=tuple(steps), tree=tree)


def _inputs(inputs: Mapping[str, Node], decoder: Decoder) -> Iterator[InputSpec]:
    for name, node in inputs.items():
        fields = node.nodes() if isinstance(node, MappingNode) else {}
        yield decoder.struct(InputSpec, {**fields, "name": name})


def _custom_ops(ops: Mapping[str, Node], decoder: Decoder) -> Iterator[CustomOp]:
    for name, node in sorted(ops.items()):
        if isinstance(node, MappingNode):
            kernels = decoder.attempt(node.get("kernel"), tuple[str, ...], ())
            sources = decoder.attempt(node.get("source"), tuple[InputFile, ...], ())
            yield CustomOp(name, kernels, sources)


def _transforms(
    target: Target, tree: MappingNode, litert: LiteRT, chains: Chains
) -> Iterator[Step]:
    """Yield the shared or own chain, then ``then``, ``litert``, repair, quantize, obfuscate, sort.

    Sorting is last because the other steps may move nodes.
    """
    yield from chains.read(tree, "transforms").steps
    yield from chains.read(tree, "then").steps
    if litert.detection_postprocess == "auto":
        yield _step(tree, "litert", "replace_detection_postprocess", ("required", True))
    yield from _aligned(target, tree, list(_quantizing(target, tree, chains)))
    if target.protect.obfuscate or _is_on(tree, "obfuscate"):
        yield _step(tree, "protect" if target.protect.obfuscate else "obfuscate", "obfuscate_names")
    if _is_on(tree, "sort"):
        yield _step(tree, "sort", "sort_by_execution_order")


def _aligned(target: Target, tree: MappingNode, quantizing: list[Step]) -> Iterator[Step]:
    """Yield the steps that quantize, and one that keeps weights of the installed model.

    It is before the step that chooses the scales, but after round_weights, which would round the
    previous values again.
    """
    download = target.download
    if download is None or not download.tolerance or target.quantize.mode in _FLOATS:
        yield from quantizing
        return
    params: list[tuple[str, ParameterValue]] = [
        ("previous", download.previous.name),
        ("tolerance", download.tolerance),
    ]
    storing = quantizing.pop() if quantizing and quantizing[-1].name in _SCALING else None
    if quantizing and quantizing[-1].name == "round_weights":
        params.append(("steps", quantizing[-1].options["num_steps"]))
    file = StepFile("previous", None, "path", download.previous)
    yield from quantizing
    yield replace(_step(tree, "download", "align_with_previous", *params), files=(file,))
    yield from () if storing is None else (storing,)


def _is_on(tree: MappingNode, key: str) -> bool:
    node = tree.get(key)
    return isinstance(node, Scalar) and node.value is True


def _step(tree: MappingNode, key: str, name: str, *params: tuple[str, ParameterValue]) -> Step:
    """Return the step that a key of the recipe adds."""
    return Step(name, params, place=str(place_of(tree, (key,))))


def _quantizing(target: Target, tree: MappingNode, chains: Chains) -> Iterator[Step]:
    quantize = target.quantize
    if target.artifact == "tflite" and (
        quantize.mode in LITERT_MODES or target.searches_exceptions
    ):
        # The package stage quantizes when it writes the file.
        for step in _repairing(target, tree, chains):
            yield _for_storing(step, _litert_steps(quantize))
    elif quantize.mode in QUANTIZERS:
        storing = _storing(quantize, tree)
        steps: dict[str, ParameterValue] = {
            name: storing.options[name] for name in _STEPS if name in storing.options
        }
        if storing.name == "quantize_weights":
            steps |= {"granularity": "tensor", "symmetric": False}
        for step in _repairing(target, tree, chains):
            yield _for_storing(step, steps)
        yield storing
    elif quantize.mode in ("nodes", "auto"):
        yield from _repairing(target, tree, chains)
        is_auto = quantize.mode == "auto"
        ranges = "observed" if is_auto else quantize.ranges
        params: list[tuple[str, ParameterValue]] = [("ranges", ranges)]
        if target.registration and _WITHOUT_PADS not in target.registration:
            params.append(("tensorflow", min(target.registration)))
        if quantize.rules:
            params.append(("rule", tuple(rule.text for rule in quantize.rules)))
        is_calibrated = ranges == "trained" and target.calibration is not None
        yield replace(
            _step(tree, "quantize", "quantize_nodes", *params),
            takes_ranges=ranges == "observed" or is_calibrated,
            trials=quantize.trials if is_auto else 0,
        )


def _repairing(target: Target, tree: MappingNode, chains: Chains) -> Iterator[Step]:
    """Yield the steps of ``repair``; steps that measure use the calibration data by default."""
    data = None if target.calibration is None else target.calibration.data
    repairs = chains.read(tree, "quantize", "repair").steps
    if target.searches_exceptions and find(tree, ("quantize", "repair")) is None:
        repairs = tuple(_step(tree, "quantize", name) for name in _usual_repairs(data))
    steps = (*chains.read(tree, "transforms").steps, *chains.read(tree, "then").steps, *repairs)
    # With the statistics of batch norms, repairs do not need data.
    has_statistics = any(step.options.get("keep_statistics") for step in steps)
    is_litert = target.artifact == "tflite" and target.quantize.mode in _EIGHT_BITS
    measuring = (*_MEASURING, "equalize_ranges") if is_litert else _MEASURING
    for step in repairs:
        uses_data = step.name in measuring and "data" not in step.options
        if data is not None and uses_data and not has_statistics and _is_arrays(data):
            file = StepFile("data", None, "path", data.file)
            params = (*step.params, ("data", data.file.name))
            yield replace(step, params=params, files=(*step.files, file), is_repair=True)
        else:
            yield replace(step, is_repair=True)


def _usual_repairs(data: Data | None) -> tuple[str, ...]:
    """Return the repairs of ``quantize: auto`` for LiteRT without ``repair``."""
    measures = data is not None and _is_arrays(data)
    return ("equalize_ranges", *(("reconstruct_weights",) if measures else ()))


def _litert_steps(quantize: Quantize) -> dict[str, ParameterValue]:
    """Return options of reconstruct_weights for the steps that a LiteRT file stores."""
    if quantize.block_size is not None:
        return {"bits": 4, "block_size": quantize.block_size}
    if quantize.mode != "weights":
        return {}
    options = (("bits", quantize.bits), ("granularity", quantize.granularity))
    steps: dict[str, ParameterValue] = {k: v for k, v in options if v is not None}
    return {"minimum_size": _quantize_default("minimum_size"), **steps}


def _for_storing(step: Step, params: Mapping[str, ParameterValue]) -> Step:
    """Add options to reconstruct_weights, for the steps that the target stores."""
    if step.name != "reconstruct_weights":
        return step
    added = [(name, value) for name, value in params.items() if name not in step.options]
    return replace(step, params=(*step.params, *added))


def _is_arrays(data: Data) -> bool:
    """Return whether the data is a file of arrays with the names of the inputs."""
    is_named = data.kind in ("npz", "npy") or data.file.name.endswith((".npz", ".npy"))
    return is_named and data.reading == Reading()


def _storing(quantize: Quantize, tree: MappingNode) -> Step:
    """Return the step that stores constants in fewer bits, or rounds them."""
    name, parameter = QUANTIZERS[quantize.mode]
    params: list[tuple[str, ParameterValue]] = [
        (parameter, dict(quantize.parameters).get(parameter, _quantize_default(parameter)))
    ]
    if quantize.mode in ("float16", "bfloat16"):
        params.append(("type", quantize.mode))
    options = [("bits", quantize.bits), ("granularity", quantize.granularity)]
    finer = [(key, value) for key, value in options if value is not None]
    if finer:
        name = "linear_quantize_weights"
    return _step(tree, "quantize", name, *params, *finer)


def _quantize_default(parameter: str) -> int:
    """Return the default of the transform's parameter, which the schema contains."""
    keys = recipe_schema()["$defs"]["quantize"]["else"]["properties"]
    return int(keys[parameter]["default"])
