"""Checks of typed recipes that relate keys, which a JSON Schema cannot express."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from mobileprep.errors import nearest_hint
from mobileprep.recipe.data import data_problems, device_problems, measurement_problems
from mobileprep.recipe.decode import ENVIRONMENT, SOURCE_KINDS, validation_nodes
from mobileprep.recipe.model import Language, Target
from mobileprep.recipe.pipeline import step_problems
from mobileprep.recipe.preprocessing import StatedPreprocessing, stated_conflicts
from mobileprep.recipe.sections import ModelSections, is_null
from mobileprep.recipe.settings import ABIS, SIGN_IN, Artifact, Cache
from mobileprep.recipe.tree import (
    MappingNode,
    Node,
    Place,
    Problem,
    Scalar,
    Sequence,
    SourceText,
    find,
    key_place,
    place_of,
    plain,
    show,
)
from mobileprep.recipe.units import parse_bytes, parse_flops
from mobileprep.recipe.validation import validation_problems
from mobileprep.recipe.validation_settings import (
    INTEGER_MODES,
    LITERT_MODES,
    QUANTIZERS,
    Quantize,
    QuantizeRule,
)

# Case-insensitive, because some file systems are.
_BESIDE_FOLDERS = re.compile(r"report\.html|.*\.provenance\.json", re.IGNORECASE)
_HTTP = ("http", "https")

# The source kinds and quantization modes that each key applies to.
_SOURCE_EXTRAS = {
    "checkpoint": ("graph", "meta_graph"),
    "tags": ("saved_model",),
    "signature": ("meta_graph", "saved_model"),
}
_QUANTIZE_EXTRAS = {
    **{
        parameter: tuple(mode for mode, (_, other) in QUANTIZERS.items() if other == parameter)
        for _, parameter in QUANTIZERS.values()
    },
    "bits": ("weights",),
    "granularity": ("weights",),
    "block_size": ("int4",),
    "ranges": ("nodes", *INTEGER_MODES),
    "rules": ("weights", "nodes", "auto", "int4", *INTEGER_MODES),
    "repair": ("weights", "nodes", "auto", "int4", *INTEGER_MODES),
    "trials": ("auto",),
    "min_int8_macs": ("auto",),
    "inference_input_type": (*INTEGER_MODES, "auto"),
    "inference_output_type": (*INTEGER_MODES, "auto"),
}
# Keys of `auto` that apply to LiteRT files only.
_LITERT_AUTO: Final = ("min_int8_macs", "inference_input_type", "inference_output_type")
# Modes of both runtimes; each other mode works in only one of them.
_COMMON: Final = frozenset({"none", "round", "float16", "weights", "auto"})
_ENDS: Final = {
    **dict.fromkeys(("int8", "auto"), ("float", "int8", "uint8")),
    "int16x8": ("float", "int16"),
}
# Ops whose weights LiteRT computes with in blocks.
_BLOCK_OPS: Final = ("MatMul", "Conv2D", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
_BLOCK_TABLES: Final = ("Gather", "GatherV2", "ResourceGather")
_FEW_BITS: Final = 4
_CALIBRATION_EXTRAS = {"percentile": ("percentile",), "decay": ("moving_average",)}

# Keywords of Java, Kotlin, and C++ that could occur as part of a package or namespace.
_KEYWORDS: Final = """
abstract alignas alignof and as asm assert auto bitand bitor bool boolean break byte case catch
char class compl const constexpr continue decltype default delete do double else enum explicit
export extends extern false final finally float for friend fun goto if implements import in
inline instanceof int interface is long mutable namespace native new noexcept not null nullptr
object operator or package private protected public register return short signed sizeof static
std strictfp struct super switch synchronized template tensorflow this throw throws transient
true try typealias typedef typeid typename typeof union unsigned using val var virtual void
volatile wchar_t when while xor
"""
# Types that the generated code uses by their short names.
_TYPES: Final = """
AssetManager AutoCloseable Boolean BufferedReader Byte Charsets Closeable Double EncryptedModel
Exception Float Int Integer List Long Math Model ArrayList IOException IllegalArgumentException
InputStreamReader
Object Override StandardCharsets String TensorFlowInferenceInterface BooleanArray ByteArray
DoubleArray FloatArray IntArray LongArray
"""
_NAMED_KEY: Final = re.compile(rf"{ENVIRONMENT}[A-Za-z_][A-Za-z0-9_]{{0,199}}\Z")
_OF_ANDROID: Final = ("java", "kotlin")


def model_problems(models: Iterable[ModelSections]) -> Iterator[Problem]:
    """Report missing sections, and names that cannot be directories next to each other."""
    models = list(models)
    yield from _names_alike((model.name, model.place) for model in models if model.name)
    for model in models:
        yield from _missing(model)
        yield from _names_alike((target.name, target.place) for target in model.targets)
        for target in model.targets:
            if _BESIDE_FOLDERS.fullmatch(target.name):
                message = f"{target.name!r} is the name of a file that builds write next to "
                message += "target directories"
                yield Problem(target.place, message, "give the target another name")


def target_problems(target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report the keys of a target that do not fit together."""
    for check in _CHECKS:
        yield from check(target, tree)


def cache_problems(cache: Cache | None, root: MappingNode) -> Iterator[Problem]:
    """Report a password in the address of the remote cache, without repeating it."""
    if cache is None:
        return
    scheme, _, rest = cache.remote.partition("://")
    secret = SIGN_IN.match(rest)
    # Azure container names also precede an at sign.
    if secret is None or (scheme not in _HTTP and ":" not in secret[0]):
        return
    place = place_of(root, ("cache", "remote"))
    message = "a recipe cannot contain a user name or a password"
    hint = "sign in as the tools of that store do, by the environment or their own files"
    if scheme in _HTTP:
        hint = "set MOBILEPREP_REMOTE_TOKEN, or write a line of ~/.netrc for that host"
    yield Problem(_hide(place, place.source.text.replace(secret[0], "***@")), message, hint)


def _hide(place: Place, text: str) -> Place:
    """Return a location whose line is shown in messages as in a text without the secret."""
    return place._replace(source=SourceText(place.source.name, place.source.folder, text))


def _missing(model: ModelSections) -> Iterator[Problem]:
    whose = "the recipe" if model.name is None else f"the model {model.name!r}"
    if not model.targets:
        hint = "add one: 'targets: {phone: {platform: android}}'"
        yield Problem(model.place, f"{whose} has no targets", hint)
    without = [target for target in model.targets if is_null(target.tree.get("source"))]
    hint = "add 'source: {graph: ..., checkpoint: ...}' or another kind of source"
    if without and len(without) == len(model.targets):
        yield Problem(model.place, f"{whose} has no source", hint)
        return
    for target in without:
        yield Problem(target.place, f"the target {target.name!r} has no source", hint)


def _names_alike(names: Iterable[tuple[str, Place]]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for name, place in names:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            message = f"{name!r} and {other!r} would share a folder on some systems"
            yield Problem(place, message, "use names that differ in more than case")


def _source(_target: Target, tree: MappingNode) -> Iterator[Problem]:
    source = tree.get("source")
    if not isinstance(source, MappingNode):
        return
    place = key_place(tree, "source")
    kinds = [kind for kind in SOURCE_KINDS if kind in source.entries]
    if not kinds:
        message = "the source names no model"
        yield Problem(place, message, f"add one of {', '.join(SOURCE_KINDS)}")
    for kind in kinds[1:]:
        message = f"a source names one model: {kinds[0]!r} is already set"
        yield Problem(key_place(source, kind), message, "keep one of them")
    if kinds == ["graph"] and "checkpoint" not in source.entries:
        hint = "add 'checkpoint: ...', or write 'frozen' for a graph without variables"
        yield Problem(place, "a graph needs the checkpoint of its variables", hint)
    if kinds:
        yield from _extra_keys(source, kinds, _SOURCE_EXTRAS)
    yield from _pins(source)


def _extra_keys(
    section: MappingNode, choices: Iterable[str], extras: Mapping[str, tuple[str, ...]]
) -> Iterator[Problem]:
    """Report keys that apply only to other choices."""
    for key, goes_with in extras.items():
        if key in section.entries and not set(goes_with) & set(choices):
            *first, last = map(repr, goes_with)
            names = f"{', '.join(first)} or {last}" if first else last
            yield Problem(key_place(section, key), f"{key!r} applies only to {names}", "remove it")


def _pins(source: MappingNode) -> Iterator[Problem]:
    nodes = [node for key, node in source.nodes().items() if key in (*SOURCE_KINDS, "checkpoint")]
    files = [str(plain(node)) for node in nodes]
    pins = source.get("sha256")
    for name in pins.entries if isinstance(pins, MappingNode) else ():
        # Checkpoints are prefixes and SavedModels are directories, so the names of their files are
        # longer.
        if not any(name == file or name.startswith((f"{file}.", f"{file}/")) for file in files):
            message = f"{show(name)} is not a file of this source"
            yield Problem(key_place(source, "sha256", name), message, nearest_hint(name, files))


def _quantize(target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report options of other modes, and sections that a mode needs."""
    quantize, mode = target.quantize, target.quantize.mode
    section = tree.get("quantize")
    if isinstance(section, MappingNode):
        if "mode" in section.entries:
            yield from _extra_keys(section, [mode], _QUANTIZE_EXTRAS)
        yield from _rules(section, target)
    place = place_of(tree, ("quantize", "mode"))
    calibration = "add 'calibration: {data: samples.npz}' to the recipe"
    if target.calibration is None:
        if mode == "auto":
            message = "'quantize: auto' needs a calibration, for the ranges"
            yield Problem(place, message, calibration)
        if mode == "nodes" and quantize.ranges == "observed":
            ranges = place_of(tree, ("quantize", "ranges"))
            yield Problem(ranges, "observed ranges need a calibration", calibration)
        if mode in INTEGER_MODES and target.artifact == "tflite" and quantize.ranges != "trained":
            message = f"'{mode}' needs a calibration, for the ranges"
            yield Problem(place, message, calibration)
    if mode == "auto" and target.validation is None:
        message = "'quantize: auto' needs a validation with limits"
        hint = "add 'validation: {data: test.npz, max_drop: 0.01}' to the recipe"
        yield Problem(place, message, hint)


def _rules(quantize: MappingNode, target: Target) -> Iterator[Problem]:
    """Report rules without an effect, and keys that another method or mode does not use."""
    rules, mode = quantize.get("rules"), target.quantize.mode
    for rule in rules.items if isinstance(rules, Sequence) else ():
        if not isinstance(rule, MappingNode):
            continue
        if not rule.entries.keys() - {"nodes", "ops"}:
            hint = "add 'mode: float', or 'bits', 'granularity' or 'method'"
            yield Problem(rule.place, "the rule has no effect", hint)
        own = rule.get("mode")
        is_integer = mode in INTEGER_MODES or target.searches_exceptions
        if own is not None and plain(own) in INTEGER_MODES and not is_integer:
            message = f"a rule with the mode {show(plain(own))} needs LiteRT's integers"
            yield Problem(key_place(rule, "mode"), message, "write 'mode: int8' in 'quantize'")
        method = rule.get("method")
        if "percentile" in rule.entries and (method is None or plain(method) != "percentile"):
            message = "'percentile' needs the method 'percentile'"
            hint = "write 'method: percentile' as well, or remove it"
            yield Problem(key_place(rule, "percentile"), message, hint)


def _calibration(target: Target, tree: MappingNode) -> Iterator[Problem]:
    section = tree.get("calibration")
    if target.calibration is None or not isinstance(section, MappingNode):
        return
    if not {"data", "range_file"} & section.entries.keys():
        place = key_place(tree, "calibration")
        yield Problem(place, "a calibration needs samples", "add 'data: samples.npz'")
    yield from _extra_keys(section, [target.calibration.method], _CALIBRATION_EXTRAS)


def _abis(target: Target, tree: MappingNode) -> Iterator[Problem]:
    abis = ABIS.get(target.platform, ())
    if not isinstance(tree.get("abis"), Sequence):
        return
    if not abis:
        platforms = "', '".join(ABIS)
        message = f"'abis' applies only to the platforms '{platforms}'"
        yield Problem(key_place(tree, "abis"), message, "remove it")
        return
    for index, abi in enumerate(target.abis):
        if abi not in abis:
            place = place_of(tree, ("abis", index))
            message = f"{target.platform} has no {show(abi)}"
            yield Problem(place, message, f"choose of {', '.join(abis)}")


def _litert(target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report LiteRT settings of targets without ``artifact: tflite``, and the reverse."""
    mode, place = target.quantize.mode, place_of(tree, ("quantize", "mode"))
    if target.artifact != "tflite":
        yield from _only_litert(target, tree)
        if mode in LITERT_MODES and mode not in _COMMON:
            message = f"'{mode}' is a mode for LiteRT"
            yield Problem(place, message, "add 'artifact: tflite' to the target")
        return
    if mode not in _COMMON and mode not in LITERT_MODES:
        message = f"LiteRT cannot run what '{mode}' makes"
        yield Problem(place, message, f"choose of {', '.join(LITERT_MODES)}")
    if find(tree, ("quantize", "minimum_size")) is not None:
        message = "'minimum_size' does not apply to 'artifact: tflite'"
        place = key_place(tree, "quantize", "minimum_size")
        yield Problem(place, message, "remove it, or choose 'int4'")
    yield from _integers(target, tree)
    if mode == "auto" and target.validation is not None and target.validation.engine == "graph":
        message = "'quantize: auto' measures .tflite files, and the validation runs the graph"
        where = place_of(tree, (*target.validation_keys(target.validation), "engine"))
        yield Problem(where, message, "remove 'engine'")
    for rule, node in _rules_of(target, tree):
        yield from _stored(target.quantize, rule, node)


def _rules_of(target: Target, tree: MappingNode) -> Iterator[tuple[QuantizeRule, MappingNode]]:
    rules = find(tree, ("quantize", "rules"))
    nodes = rules.items if isinstance(rules, Sequence) else ()
    for rule, node in zip(target.quantize.rules, nodes, strict=False):
        if isinstance(node, MappingNode):
            yield rule, node


def _stored(quantize: Quantize, rule: QuantizeRule, node: MappingNode) -> Iterator[Problem]:
    """Report a rule of a LiteRT target with weights that LiteRT does not compute with."""
    if rule.mode == "nodes" and quantize.mode not in (*INTEGER_MODES, "auto"):
        message = f"'{quantize.mode}' only stores weights, so a rule cannot compute in 8 bits"
        yield Problem(key_place(node, "mode"), message, "write 'weights' or 'float'")
    if rule.block_size is None:
        return
    place = key_place(node, "block_size")
    bits = (_FEW_BITS if quantize.mode == "int4" else 8) if rule.bits is None else rule.bits
    if bits > _FEW_BITS:
        message = f"LiteRT has no kernels for blocks of {bits}-bit weights"
        yield Problem(place, message, "write 'bits: 4' as well, or remove it")
    if rule.granularity is not None:
        message = "'block_size' and 'granularity' exclude each other"
        yield Problem(place, message, "remove one of them")
    if quantize.mode in (*INTEGER_MODES, "auto") and rule.mode != "weights":
        message = "LiteRT has kernels for blocks of weights only with float activations"
        yield Problem(place, message, "write 'mode: weights' as well, or remove it")
    if rule.ops and not {*_BLOCK_OPS, *_BLOCK_TABLES} & set(rule.ops):
        message = f"LiteRT has no kernels for blocks of weights of {', '.join(rule.ops)}"
        hint = "choose MatMul, Conv2D with 1x1 filters, or GatherV2, or remove it"
        yield Problem(place, message, hint)


def _only_litert(target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report keys of a target that apply only to .tflite files."""
    if target.quantize.mode == "weights" and target.quantize.rules:
        message = "rules for 'weights' require 'artifact: tflite'"
        hint = f"add 'artifact: tflite' to the target {target.name!r}, or remove them"
        yield Problem(key_place(tree, "quantize", "rules"), message, hint)
    for rule, node in _rules_of(target, tree):
        if rule.block_size is not None and target.quantize.mode in ("nodes", "auto"):
            message = "'block_size' requires 'artifact: tflite'"
            yield Problem(key_place(node, "block_size"), message, "remove it")
    for keys in (("check",), *(keys for keys, _ in validation_nodes(tree))):
        if find(tree, (*keys, "engine")) is not None:
            message = f"'engine' of '{keys[0]}' requires 'artifact: tflite'"
            hint = f"add 'artifact: tflite' to the target {target.name!r}, or remove 'engine'"
            yield Problem(place_of(tree, (*keys, "engine")), message, hint)
    for key in _LITERT_AUTO if target.quantize.mode == "auto" else ():
        if find(tree, ("quantize", key)) is not None:
            message = f"{key!r} requires 'artifact: tflite'"
            hint = f"add 'artifact: tflite' to the target {target.name!r}, or remove {key!r}"
            yield Problem(key_place(tree, "quantize", key), message, hint)
    used = {
        "litert": isinstance(tree.get("litert"), MappingNode),
        "streaming": target.streaming is not None,
    }
    for key in (key for key, is_used in used.items() if is_used):
        message = f"{key!r} requires 'artifact: tflite'"
        hint = f"add 'artifact: tflite' to the target {target.name!r}, or remove {key!r}"
        yield Problem(key_place(tree, key), message, hint)
    if target.flex:
        message = "'flex' is of .tflite files, and this target ships none"
        yield Problem(place_of(tree, ("flex",)), message, "add 'artifact: tflite', or remove it")


def _integers(target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report types and ranges that a mode that computes in integers does not have."""
    quantize, mode = target.quantize, target.quantize.mode
    if mode not in _ENDS:
        return
    ends = (("input", quantize.inference_input_type), ("output", quantize.inference_output_type))
    for end, dtype in ends:
        if dtype not in _ENDS[mode]:
            place = place_of(tree, ("quantize", f"inference_{end}_type"))
            message = f"{dtype!r} is not an {end} type for '{mode}'"
            yield Problem(place, message, f"choose of {', '.join(_ENDS[mode])}")
    ranges = find(tree, ("quantize", "ranges"))
    if ranges is not None and plain(ranges) == "dynamic":
        message = f"'{mode}' needs ranges that are known before the model runs"
        yield Problem(ranges.place, message, "write 'observed' or 'trained'")


def _budget(_target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report invalid sizes and counts, and a latency without a device."""
    for keys in (("budget",), ("pipeline", "budget")):
        budget = find(tree, keys)
        for key, node in budget.nodes().items() if isinstance(budget, MappingNode) else ():
            limits = node.nodes().values() if isinstance(node, MappingNode) else (node,)
            for limit in limits:
                yield from amount_problems(key, limit)
        latency = find(tree, (*keys, "latency_ms"))
        rated = tree.get("device") or (keys == ("budget",) and tree.get("measurement"))
        if latency is not None and not is_null(latency) and not rated:
            place = key_place(tree, *keys, "latency_ms")
            hint = "add 'device: smartphone', or another of 'mobileprep benchmark --device'"
            yield Problem(place, "a latency needs the device whose it is", hint)


def _download(target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report a limit without a delta, and a delta between encrypted files."""
    if target.download is None:
        if target.budget.download_bytes is not None:
            place = key_place(tree, "budget", "download_bytes")
            hint = "add 'download: {previous: installed.pb}' to the target"
            yield Problem(place, "a limit of the download needs the installed model", hint)
    elif target.protect.key is not None:
        message = "an encrypted model differs from the installed one in every byte"
        hint = "remove 'encrypt' or 'download' from the target"
        yield Problem(key_place(tree, "download"), message, hint)


_AMOUNTS: Final[dict[str, tuple[Callable[[str], int | None], str, str]]] = {
    "flops": (parse_flops, "a number of operations", "with KFLOP, MFLOP or GFLOP: '20 MFLOP'"),
    **dict.fromkeys(
        (
            *("model_bytes", "compressed_bytes", "download_bytes", "activation_bytes"),
            *("kernel_bytes", "ram", "memory"),
        ),
        (parse_bytes, "a size", "with B, KB, MB, KiB or MiB: '60 KB'"),
    ),
}
"""For each key: the parser, the name of the unit, and a hint for the format."""


def amount_problems(key: str, node: Node | None) -> Iterator[Problem]:
    """Report an invalid size or number of operations."""
    if key not in _AMOUNTS or not isinstance(node, Scalar) or not isinstance(node.value, str):
        return
    parse, what, how = _AMOUNTS[key]
    amount = parse(node.value)
    if amount is None:
        yield Problem(node.place, f"{show(node.value)} is not {what}", f"write a number {how}")
    elif amount < 1:
        least = "operation" if key == "flops" else "byte"
        yield Problem(node.place, f"must be at least one {least}")


def _preprocessing(target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report keys that do not fit together, and a step that changes the inputs."""
    if isinstance(target.preprocessing, StatedPreprocessing):
        for key, message, hint in stated_conflicts(target.preprocessing, target.inputs):
            yield Problem(place_of(tree, ("preprocessing", key)), message, hint)
    if any(step.name == "cut_preprocessing" for step in target.transforms):
        message = "the transform cut_preprocessing cannot be a step of a recipe"
        yield Problem(place_of(tree, ("transforms",)), message, "write 'preprocessing: cut'")


def _integration(target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report names that are invalid in a language, and models that an interface cannot load."""
    code = target.integration
    if code is None:
        return
    if find(tree, ("integration", "languages")) is None:
        place = key_place(tree, "integration")
        yield Problem(place, "the key 'languages' is missing", "add 'languages: [java]'")
    for word in sorted(set(_KEYWORDS.split()) & set(code.package.split("."))):
        place = place_of(tree, ("integration", "package"))
        yield Problem(place, f"{word!r} cannot be a part of a package", "rename it")
    if code.class_name in _TYPES.split():
        place = place_of(tree, ("integration", "class_name"))
        message = f"the code has another class of the name {code.class_name!r}"
        yield Problem(place, message, "choose another name")
    for index, language in enumerate(code.languages):
        place = place_of(tree, ("integration", "languages", index))
        yield from _language(language, target.artifact, place)


def _language(language: Language, artifact: Artifact, place: Place) -> Iterator[Problem]:
    """Report a language without an interface to the runtime, or one that cannot load the model."""
    runtime, missing, hint = "TensorFlow", "swift", "write 'objc'"
    if artifact == "tflite":
        runtime, missing, hint = "LiteRT", "objc", "write 'swift' or 'cpp'"
    if language == missing:
        yield Problem(place, f"no code for {runtime} is here in {missing!r}", hint)
    if language in _OF_ANDROID and artifact in ("text", "memmapped"):
        message = "TensorFlowInferenceInterface loads no model with "
        message += f"'artifact: {artifact}', as {language!r} would"
        yield Problem(place, message, "leave it out, or ship 'artifact: frozen'")


def _protection(target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report an encryption key in the recipe, and models that cannot be encrypted."""
    encrypt = find(tree, ("protect", "encrypt"))
    if not isinstance(encrypt, MappingNode):
        return
    key = encrypt.get("key")
    if isinstance(key, Scalar) and not (isinstance(key.value, str) and _NAMED_KEY.match(key.value)):
        message = "a recipe cannot contain the key itself"
        hint = "write 'key: env:NAME', where NAME is the variable that has it"
        lines = list(key.place.source.lines)
        lines[key.place.line - 1] = f"{lines[key.place.line - 1][: key.place.column - 1]}***"
        yield Problem(_hide(key.place, "\n".join(lines)), message, hint)
    if target.artifact == "memmapped":
        message = "an encrypted model cannot be mapped into memory"
        yield Problem(encrypt.place, message, "leave 'encrypt' out, or ship 'artifact: frozen'")


def _custom_op_sources(target: Target, tree: MappingNode) -> Iterator[Problem]:
    """Report source files of custom ops that would overwrite each other in the target."""
    seen: dict[str, str] = {}
    for op in target.ops:
        for index, file in enumerate(op.sources):
            name = file.name.rpartition("/")[2].casefold()
            other = seen.setdefault(name, file.name)
            if other != file.name:
                place = place_of(tree, ("ops", op.name, "source", index))
                message = f"{file.name!r} and {other!r} have the same file name"
                yield Problem(place, message, "rename one of them")


_CHECKS: tuple[Callable[[Target, MappingNode], Iterator[Problem]], ...] = (
    _source,
    _calibration,
    validation_problems,
    data_problems,
    _quantize,
    _litert,
    _abis,
    _budget,
    _download,
    step_problems,
    device_problems,
    measurement_problems,
    _preprocessing,
    _integration,
    _protection,
    _custom_op_sources,
)
