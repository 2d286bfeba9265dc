"""What a first recipe says of a model's interface: inputs, outputs, and why it is these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.freezing.guess import GuessedInterface, described, find_interface, specs_of
from mobileprep.freezing.model import LoadedSource, TensorSpec
from mobileprep.freezing.outputs import chosen_signature
from mobileprep.freezing.training import is_of_training
from mobileprep.frozen import dataclass
from mobileprep.ir.reachability import reachable
from mobileprep.ir.refs import parse_ref

_KEEPS: Final = re.compile(r"(.*[/_])?(keep_?prob|keep_?rate)[^/]*\Z", re.IGNORECASE)
_DROPS: Final = re.compile(r"(.*[/_])?(drop_?out|drop_?prob|drop_?rate)[^/]*\Z", re.IGNORECASE)
_DEFAULTED: Final = "PlaceholderWithDefault"
# As recipes name tensors.
_NAME: Final = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*(:[0-9]+)?\Z")


@dataclass(frozen=True)
class ProposedInput:
    """An input, and what the app has to know of it."""

    spec: TensorSpec
    remark: str = ""


@dataclass(frozen=True)
class Proposal:
    """The interface of a model.

    Args:
        signature: the signature to name; empty for none, the default or the only one.
        inputs: likeliest first.
        outputs: the names of the outputs.
        about_inputs: why these, and what else there is; sentences.
        about_outputs: likewise.
        guessed: the outputs with type and shape, where neither a signature nor a caller named
            them.
    """

    signature: str = ""
    inputs: tuple[ProposedInput, ...] = ()
    outputs: tuple[str, ...] = ()
    about_inputs: tuple[str, ...] = ()
    about_outputs: tuple[str, ...] = ()
    guessed: tuple[TensorSpec, ...] = ()


def propose(
    source: LoadedSource,
    *,
    signature: str = "",
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> Proposal:
    """The inputs and outputs of a model, as far as it shows them.

    Args:
        source: the model.
        signature: the signature that the user names.
        inputs: the names that the user gives, of tensors or of the signature's arguments; empty for
            the likely ones.
        outputs: likewise.

    Raises:
        UsageError: there is no such signature.
        InvalidGraphError: the graph is broken, or shows no output.
    """
    name = signature or _signature(source)
    chosen = chosen_signature(source, name)
    if chosen is not None:
        inputs = _tensors(source, chosen.inputs, inputs)
        outputs = _tensors(source, chosen.outputs, outputs)
    found = find_interface(source, chosen)
    fetched, about_outputs = _outputs(source, found, outputs, is_told=chosen is not None)
    given = specs_of(source.graph, inputs) if inputs else _needed(source, found.inputs, fetched)
    if not inputs and chosen is None:
        about_inputs = ["Inputs: the placeholders that these outputs need."]
    else:
        about_inputs = []
    if chosen is not None:
        about_inputs.append(_about_signature(source, name))
    fed = [i for i in given if inputs or not _has_default(source, i)]
    left = [i for i in given if i not in fed]
    if left:
        about_inputs.append(f"Not fed, as they have defaults: {described(left)}.")
    is_guessed = chosen is None and not outputs
    is_default = name in ("", "serving_default") or len(source.signatures) == 1
    return Proposal(
        "" if is_default and not signature else name,
        tuple(_remarked(spec) for spec in fed),
        fetched,
        tuple(about_inputs),
        tuple(about_outputs),
        tuple(t for t in found.outputs if t.name in fetched) if is_guessed else (),
    )


def _tensors(
    source: LoadedSource, arguments: Mapping[str, TensorSpec], names: Iterable[str]
) -> list[str]:
    """Names of tensors for such names, which come first, and those of a signature's arguments."""
    return [
        name
        if name not in arguments or parse_ref(name).node in source.graph
        else arguments[name].name
        for name in names
    ]


def _signature(source: LoadedSource) -> str:
    """The signature to take where none is the default: one that takes numbers comes first."""
    if chosen_signature(source, "") is not None or not source.signatures:
        return ""

    def doubt(name: str) -> tuple[bool, bool, str]:
        taken = source.signatures[name].inputs.values()
        return (not taken, any(s.dtype is DType.STRING for s in taken), name)

    return min(source.signatures, key=doubt)


def _about_signature(source: LoadedSource, name: str) -> str:
    names = sorted(source.signatures)
    taken = name or ("serving_default" if "serving_default" in names else names[0])
    others = [n for n in names if n != taken]
    more = f" There are also {', '.join(others)}: 'signature:' in source chooses." if others else ""
    signature = source.signatures[taken]
    arguments = {**signature.inputs, **signature.outputs}
    told = ", ".join(f"{argument} is {spec.name}" for argument, spec in arguments.items())
    return f"Inputs and outputs are those of the signature {taken}: {told}.{more}"


def _outputs(
    source: LoadedSource, found: GuessedInterface, given: Sequence[str], *, is_told: bool
) -> tuple[tuple[str, ...], list[str]]:
    """The outputs, and what is said of them."""
    if given:
        return tuple(given), []
    named = [t for t in found.outputs if _NAME.match(t.name)]
    if not named:
        message = "shows no output that an app could fetch"
        raise InvalidGraphError(message, "name them: --outputs NAME,NAME", source.where)
    if is_told:
        return tuple(t.name for t in named), []
    if not is_of_training(source.graph) or len(named) == 1:
        return tuple(t.name for t in named), [_about_ends(source, named)]
    about = "Outputs: the end of the longest way from the inputs, as the graph also trains."
    return (named[0].name,), [about, f"Likely too: {described(named[1:])}."]


def _about_ends(source: LoadedSource, ends: Iterable[TensorSpec]) -> str:
    if all(parse_ref(t.name).node not in source.graph.consumers for t in ends):
        return "Outputs: what nothing else takes."
    return "Outputs: what nothing else takes, but for losses, scores and summaries."


def _needed(
    source: LoadedSource, inputs: Iterable[TensorSpec], outputs: Iterable[str]
) -> tuple[TensorSpec, ...]:
    roots = [node for name in outputs if (node := parse_ref(name).node) in source.graph]
    needed = reachable(source.graph, roots)
    return tuple(t for t in inputs if parse_ref(t.name).node in needed and _NAME.match(t.name))


def _has_default(source: LoadedSource, spec: TensorSpec) -> bool:
    """Whether an input only steers, and does what an app wants without being fed."""
    node = source.graph.get(parse_ref(spec.name).node)
    is_number = spec.shape == () or spec.dtype is DType.BOOL
    return node is not None and node.op == _DEFAULTED and is_number


def _remarked(spec: TensorSpec) -> ProposedInput:
    name = parse_ref(spec.name).node
    if spec.dtype is DType.BOOL and not spec.shape:
        remark = "A switch, such as between training and inference: the app feeds false for that."
        return ProposedInput(replace(spec, shape=()), remark)
    if spec.dtype.is_floating and not spec.shape and (_KEEPS.match(name) or _DROPS.match(name)):
        share = "1: dropout keeps all" if _KEEPS.match(name) else "0: dropout drops nothing"
        return ProposedInput(replace(spec, shape=()), f"The app feeds {share}.")
    if spec.shape is None:
        return ProposedInput(spec, "The graph does not tell its shape: add it, as shape: [1, 224].")
    return ProposedInput(spec)
