"""Semantic checks that a JSON Schema cannot express."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from mobileprep.errors import nearest_hint
from mobileprep.recipe.data import data_problems, device_problems
from mobileprep.recipe.metrics import budget_problems, litert_problems
from mobileprep.recipe.model import integration_problems, protection_problems
from mobileprep.recipe.sections import ModelSections, TargetSections
from mobileprep.recipe.settings import ABIS, SIGN_IN
from mobileprep.recipe.tree import (
    Entry,
    MappingNode,
    Place,
    Problem,
    Scalar,
    Sequence,
    SourceText,
    plain,
    show,
)
from mobileprep.recipe.validation import validation_problems
from mobileprep.recipe.validation_settings import INTEGER_MODES, QUANTIZERS, Calibration

# Case-insensitive, because some file systems are.
_BESIDE_FOLDERS = re.compile(r"report\.html|.*\.provenance\.json", re.IGNORECASE)
_HTTP = ("http", "https")
SOURCE_KINDS = ("frozen", "graph", "meta_graph", "saved_model")

# The source kinds and quantization modes that each key applies to.
_SOURCE_EXTRAS = {
    "checkpoint": ("graph", "meta_graph"),
    "tags": ("saved_model",),
    "signature": ("meta_graph", "saved_model"),
}
_QUANTIZE_EXTRAS = {
    **{
        parameter: tuple(mode for mode, (_, taken) in QUANTIZERS.items() if taken == parameter)
        for _, parameter in QUANTIZERS.values()
    },
    "bits": ("weights",),
    "granularity": ("weights",),
    "ranges": ("nodes", *INTEGER_MODES),
    "rules": ("nodes", "auto", *INTEGER_MODES),
    "repair": ("nodes", "auto", *INTEGER_MODES),
    "trials": ("auto",),
    "inference_input_type": INTEGER_MODES,
    "inference_output_type": INTEGER_MODES,
}
_CALIBRATION_EXTRAS = {"percentile": ("percentile",), "decay": ("moving_average",)}


def meaning_problems(models: Iterable[ModelSections]) -> list[Problem]:
    """Return all problems of sections whose values have valid types."""
    models = list(models)
    named = [(model.name, model.place) for model in models if model.name is not None]
    problems = list(_names_alike(named))
    for model in models:
        problems += _missing(model)
        targets = [(target.name, target.place) for target in model.targets]
        problems += [*_names_alike(targets), *_names_taken(targets)]
        for target in model.targets:
            for check in _CHECKS:
                problems += check(target)
    return problems


def cache_problems(root: MappingNode) -> Iterator[Problem]:
    """Report a password in the address of the remote cache, without repeating it."""
    cache = root.get("cache")
    remote = cache.get("remote") if isinstance(cache, MappingNode) else None
    if not isinstance(remote, Scalar) or not isinstance(remote.value, str):
        return
    scheme, _, rest = remote.value.partition("://")
    secret = SIGN_IN.match(rest)
    # Azure container names also precede an at sign.
    if secret is None or (scheme not in _HTTP and ":" not in secret[0]):
        return
    written = remote.place.source
    # Messages show the source line, so hide the secret there.
    hidden = SourceText(written.name, written.folder, written.text.replace(secret[0], "***@"))
    message = "a recipe cannot contain a user name or a password"
    hint = "sign in as the tools of that store do, by the environment or their own files"
    if scheme in _HTTP:
        hint = "set MOBILEPREP_REMOTE_TOKEN, or write a line of ~/.netrc for that host"
    yield Problem(remote.place._replace(source=hidden), message, hint)


def _missing(model: ModelSections) -> Iterator[Problem]:
    whose = "the recipe" if model.name is None else f"the model {model.name!r}"
    if not model.targets:
        hint = "add one: 'targets: {phone: {platform: android}}'"
        yield Problem(model.place, f"{whose} has no targets", hint)
    without = [target for target in model.targets if target.get("source") is None]
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


def _names_taken(names: Iterable[tuple[str, Place]]) -> Iterator[Problem]:
    for name, place in names:
        if _BESIDE_FOLDERS.fullmatch(name):
            message = f"{name!r} is the name of a file that builds write next to target directories"
            yield Problem(place, message, "give the target another name")


def _source(target: TargetSections) -> Iterator[Problem]:
    source = target.mapping("source")
    if source is not None:
        yield from _source_kind(source, target)
        yield from _source_pins(source)


def _source_kind(source: MappingNode, target: TargetSections) -> Iterator[Problem]:
    place = target.tree.entries["source"].key_place
    kinds = [kind for kind in SOURCE_KINDS if kind in source.entries]
    if not kinds:
        message = "the source names no model"
        yield Problem(place, message, f"add one of {', '.join(SOURCE_KINDS)}")
        return
    for kind in kinds[1:]:
        message = f"a source names one model: {kinds[0]!r} is already set"
        yield Problem(source.entries[kind].key_place, message, "keep one of them")
    if kinds == ["graph"] and "checkpoint" not in source.entries:
        hint = "add 'checkpoint: ...', or write 'frozen' for a graph without variables"
        yield Problem(place, "a graph needs the checkpoint of its variables", hint)
    for key, goes_with in _SOURCE_EXTRAS.items():
        if key in source.entries and not set(goes_with) & set(kinds):
            yield _out_of_place(key, source.entries[key], goes_with)


def _out_of_place(key: str, entry: Entry, goes_with: tuple[str, ...]) -> Problem:
    *first, last = map(repr, goes_with)
    named = f"{', '.join(first)} or {last}" if first else last
    message = f"{key!r} applies only to {named}"
    return Problem(entry.key_place, message, "remove it")


def _source_pins(source: MappingNode) -> Iterator[Problem]:
    pins = source.get("sha256")
    if not isinstance(pins, MappingNode):
        return
    named = [plain(entry.value) for key, entry in source.items() if key in _FILE_KEYS]
    files = [name for name in named if isinstance(name, str)]
    for name, entry in pins.items():
        # Checkpoints are prefixes and SavedModels are directories, so the names of their files are
        # longer.
        if not any(name == file or name.startswith((f"{file}.", f"{file}/")) for file in files):
            message = f"{show(name)} is not a file of this source"
            yield Problem(entry.key_place, message, nearest_hint(name, files))


def _auto(target: TargetSections) -> Iterator[Problem]:
    """Check that automatic quantization has a calibration and a validation."""
    given = target.get("quantize")
    mode = given.get("mode") if isinstance(given, MappingNode) else given
    if mode is None or plain(mode) != "auto":
        return
    if target.mapping("calibration") is None:
        hint = "add 'calibration: {data: samples.npz}' to the recipe"
        yield Problem(mode.place, "'quantize: auto' needs a calibration, for the ranges", hint)
    if target.mapping("validation") is None:
        message = "'quantize: auto' needs a validation with limits"
        hint = "add 'validation: {data: test.npz, max_drop: 0.01}' to the recipe"
        yield Problem(mode.place, message, hint)


def _quantize(target: TargetSections) -> Iterator[Problem]:
    quantize = target.mapping("quantize")
    if quantize is None:
        return
    mode = quantize.get("mode")
    for key, goes_with in _QUANTIZE_EXTRAS.items():
        if key in quantize.entries and mode is not None and plain(mode) not in goes_with:
            yield _out_of_place(key, quantize.entries[key], goes_with)
    yield from _rules(quantize)

    is_observed = mode is not None and plain(mode) == "nodes"
    ranges = quantize.get("ranges")
    if not is_observed or ranges is None or plain(ranges) != "observed":
        return
    if target.mapping("calibration") is None:
        place = quantize.entries["ranges"].value.place
        hint = "add 'calibration: {data: samples.npz}' to the recipe"
        yield Problem(place, "observed ranges need a calibration", hint)


def _rules(quantize: MappingNode) -> Iterator[Problem]:
    """Report rules without an effect, and keys that another method does not use."""
    rules = quantize.get("rules")
    if not isinstance(rules, Sequence):
        return
    for rule in rules.items:
        if not isinstance(rule, MappingNode):
            continue
        if not rule.entries.keys() - {"nodes", "ops"}:
            hint = "add 'mode: float', or 'bits', 'granularity' or 'method'"
            yield Problem(rule.place, "the rule has no effect", hint)
        method = rule.get("method")
        if "percentile" in rule.entries and (method is None or plain(method) != "percentile"):
            message = "'percentile' needs the method 'percentile'"
            hint = "write 'method: percentile' as well, or remove it"
            yield Problem(rule.entries["percentile"].key_place, message, hint)


def _calibration(target: TargetSections) -> Iterator[Problem]:
    calibration = target.mapping("calibration")
    if calibration is None:
        return
    if not {"data", "range_file"} & set(calibration.entries):
        place = target.tree.entries["calibration"].key_place
        yield Problem(place, "a calibration needs samples", "add 'data: samples.npz'")
    method = calibration.get("method")
    name = Calibration().method if method is None else plain(method)
    for key, goes_with in _CALIBRATION_EXTRAS.items():
        if key in calibration.entries and name not in goes_with:
            yield _out_of_place(key, calibration.entries[key], goes_with)


def _abis(target: TargetSections) -> Iterator[Problem]:
    listed, named = target.get("abis"), target.get("platform")
    platform = "generic" if named is None else plain(named)
    if not isinstance(listed, Sequence):
        return
    there: tuple[str, ...] = next((abis for name, abis in ABIS.items() if name == platform), ())
    if not there:
        place = target.tree.entries["abis"].key_place
        platforms = "', '".join(ABIS)
        yield Problem(place, f"'abis' applies only to the platforms '{platforms}'", "remove it")
        return
    for item in listed.items:
        if plain(item) not in there:
            message = f"{platform} has no {show(plain(item))}"
            yield Problem(item.place, message, f"choose of {', '.join(there)}")


def _flex(target: TargetSections) -> Iterator[Problem]:
    flex, artifact = target.get("flex"), target.get("artifact")
    is_lite = artifact is not None and plain(artifact) == "tflite"
    if flex is not None and plain(flex) is True and not is_lite:
        message = "'flex' is of .tflite files, and this target ships none"
        yield Problem(flex.place, message, "add 'artifact: tflite', or remove it")


def _custom_op_sources(target: TargetSections) -> Iterator[Problem]:
    """Report source files of custom ops that would overwrite each other in the target."""
    seen: dict[str, str] = {}
    for entry in target.section("ops").entries.values():
        listed = entry.value.get("source") if isinstance(entry.value, MappingNode) else None
        for item in listed.items if isinstance(listed, Sequence) else [listed]:
            if isinstance(item, Scalar) and isinstance(item.value, str):
                name = item.value.rpartition("/")[2].casefold()
                other = seen.setdefault(name, item.value)
                if other != item.value:
                    message = f"{item.value!r} and {other!r} have the same file name"
                    yield Problem(item.place, message, "rename one of them")


_FILE_KEYS = (*SOURCE_KINDS, "checkpoint")
_CHECKS: tuple[Callable[[TargetSections], Iterator[Problem]], ...] = (
    _source,
    _calibration,
    validation_problems,
    data_problems,
    _quantize,
    _auto,
    litert_problems,
    _abis,
    budget_problems,
    device_problems,
    integration_problems,
    protection_problems,
    _flex,
    _custom_op_sources,
)
