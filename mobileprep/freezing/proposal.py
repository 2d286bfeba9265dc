"""Propose the inputs and outputs for a first recipe of a model, with the reasons."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.freezing.fetchable import DecodedImage
from mobileprep.freezing.freeze import chosen_signature
from mobileprep.freezing.guess import (
    DEFAULTED,
    GuessedInterface,
    described,
    find_interface,
    specs_of,
)
from mobileprep.freezing.model import LoadedSource, TensorSpec
from mobileprep.freezing.training import is_of_training
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import parse_ref
from mobileprep.runtime.sampling.findings import FirstOps
from mobileprep.runtime.sampling.first_ops import first_ops
from mobileprep.runtime.sampling.inputs import FedTensor, known_sizes, setting

# Ops whose input is the content of a single file.
_ONE_FILE: Final = frozenset(
    {"DecodeWav", "DecodeJpeg", "DecodePng", "DecodeBmp", "DecodeGif", "DecodeImage"}
    | {"DecodeAndCropJpeg", "ParseSingleExample"}
)
# Tensor names that recipes accept.
_NAME: Final = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*(:[0-9]+)?\Z")

_NO_SHAPE: Final = "The graph does not record its shape."


class ProposedInput(Struct, frozen=True):
    """An input, with a remark for the author of the app."""

    spec: TensorSpec
    remark: str = ""


class Proposal(Struct, frozen=True):
    """The proposed interface of a model.

    Args:
        signature: signature that the recipe has to name; empty if there is none or it is the
            default.
        inputs: inputs, most likely first.
        outputs: names of the outputs.
        about_inputs: sentences about the choice of inputs and their alternatives.
        about_outputs: sentences about the choice of outputs and their alternatives.
        guessed: the outputs with type and shape if neither a signature nor the caller named them.
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
    """Propose the inputs and outputs of a model.

    Args:
        inputs: names of tensors or of the signature's arguments, as given by the user; empty for
            the likely inputs.

    Raises:
        InvalidGraphError: if the graph has no output that an app could fetch.
    """
    name = signature or _signature(source)
    chosen = chosen_signature(source, name)
    if chosen is not None:
        inputs = _tensors(source, chosen.inputs, inputs)
        outputs = _tensors(source, chosen.outputs, outputs)
    interface = find_interface(source, chosen)
    fetched, about_outputs = _outputs(source, interface, outputs, has_signature=chosen is not None)
    specs = specs_of(source.graph, inputs) if inputs else _needed(source, interface.inputs, fetched)
    if not inputs and chosen is None:
        about_inputs = ["Inputs: the placeholders that these outputs need."]
    else:
        about_inputs = []
    if chosen is not None:
        about_inputs.append(_about_signature(source, name))
    fed = [i for i in specs if inputs or not _has_default(source, i)]
    unfed = [i for i in specs if i not in fed]
    if unfed:
        about_inputs.append(f"Not fed, as they have defaults: {described(unfed)}.")
    names = {spec.name: spec for spec in fed}
    about_inputs += [
        _about_image(names[str(image.ref)], image)
        for image in interface.images
        if str(image.ref) in names and not image.is_fed
    ]
    is_guessed = chosen is None and not outputs
    is_default = name in ("", "serving_default") or len(source.signatures) == 1
    return Proposal(
        "" if is_default and not signature else name,
        tuple(_remarked(source, spec, interface.images) for spec in fed),
        fetched,
        tuple(about_inputs),
        tuple(about_outputs),
        tuple(t for t in interface.outputs if t.name in fetched) if is_guessed else (),
    )


def _tensors(
    source: LoadedSource, arguments: Mapping[str, TensorSpec], names: Iterable[str]
) -> list[str]:
    """Return tensor names for names of tensors, which have precedence, or of arguments."""
    return [
        name
        if name not in arguments or parse_ref(name).node in source.graph
        else arguments[name].name
        for name in names
    ]


def _signature(source: LoadedSource) -> str:
    """Return the signature to use if there is no default: preferably one with numeric inputs."""
    if chosen_signature(source, "") is not None or not source.signatures:
        return ""

    def doubt(name: str) -> tuple[bool, bool, str]:
        inputs = source.signatures[name].inputs.values()
        return (not inputs, any(s.dtype is DType.STRING for s in inputs), name)

    return min(source.signatures, key=doubt)


def _about_signature(source: LoadedSource, name: str) -> str:
    names = sorted(source.signatures)
    chosen = name or ("serving_default" if "serving_default" in names else names[0])
    others = [n for n in names if n != chosen]
    more = f" There are also {', '.join(others)}: 'signature:' in source chooses." if others else ""
    signature = source.signatures[chosen]
    arguments = {**signature.inputs, **signature.outputs}
    bindings = ", ".join(f"{argument} is {spec.name}" for argument, spec in arguments.items())
    return f"Inputs and outputs are those of the signature {chosen}: {bindings}.{more}"


def _outputs(
    source: LoadedSource,
    interface: GuessedInterface,
    requested: Sequence[str],
    *,
    has_signature: bool,
) -> tuple[tuple[str, ...], list[str]]:
    """Return the outputs, and sentences about them."""
    if requested:
        return tuple(requested), []
    named = [t for t in interface.outputs if _NAME.match(t.name)]
    if not named:
        message = "shows no output that an app could fetch"
        raise InvalidGraphError(message, "name them: --outputs NAME,NAME", source.where)
    if has_signature:
        return tuple(t.name for t in named), []
    if not is_of_training(source.graph) or len(named) == 1:
        return tuple(t.name for t in named), [_about_ends(source, named)]
    about = "Outputs: the result furthest from the inputs, as the graph also trains the model."
    return (named[0].name,), [about, f"Likely too: {described(named[1:])}."]


def _about_ends(source: LoadedSource, ends: Iterable[TensorSpec]) -> str:
    if all(parse_ref(t.name).node not in source.graph.consumers for t in ends):
        return "Outputs: used by no other node."
    return "Outputs: used by nothing but losses, scores, and summaries."


def _needed(
    source: LoadedSource, inputs: Sequence[TensorSpec], outputs: Iterable[str]
) -> tuple[TensorSpec, ...]:
    """Return the inputs that outputs need; inputs of defaults that are not fed are not needed."""
    graph = source.graph
    roots = [node for name in outputs if (node := parse_ref(name).node) in graph]
    fed = {parse_ref(t.name) for t in inputs if not _has_default(source, t)}
    needed = reachable(graph, roots, fed)
    refs = {ref for name in needed for ref in graph[name].data_inputs}
    refs |= {parse_ref(name) for name in outputs}
    return tuple(t for t in inputs if parse_ref(t.name) in refs and _NAME.match(t.name))


def _has_default(source: LoadedSource, spec: TensorSpec) -> bool:
    """Return whether an input is a control value whose default fits an app."""
    node = source.graph.get(parse_ref(spec.name).node)
    is_number = spec.shape == () or spec.dtype is DType.BOOL
    return node is not None and node.op == DEFAULTED and is_number


def _remarked(
    source: LoadedSource, spec: TensorSpec, images: Iterable[DecodedImage]
) -> ProposedInput:
    """Return an input with the shape that its first ops require, and a remark for the app."""
    ref = parse_ref(spec.name)
    if spec.dtype is DType.BOOL and not spec.shape:
        remark = "A switch, such as between training and inference: the app feeds false for that."
        return ProposedInput(replace(spec, shape=()), remark)
    if ref.node not in source.graph:
        return ProposedInput(spec)
    ops = first_ops(source.graph, ref)
    fed = FedTensor(spec.name, spec.dtype, spec.shape)
    value = None if spec.shape else setting(fed, ops)
    if value is not None:
        return ProposedInput(replace(spec, shape=()), _about_setting(value, ops))
    if spec.shape is None and ops.file is not None and ops.file.op in _ONE_FILE:
        spec = replace(spec, shape=())
    for image in images:
        if image.is_fed and image.contents == ref:
            return ProposedInput(spec, _about_file(source, image))
    return ProposedInput(spec, "" if spec.shape is not None else _about_shape(fed, ops))


def _about_setting(value: float, ops: FirstOps) -> str:
    if ops.probability is not None:
        share = "keeps everything" if value else "drops nothing"
        return f"The app feeds {value:g}: the dropout {share}."
    return f"A setting. Judging by the name, the app feeds {value:g}."


def _about_shape(fed: FedTensor, ops: FirstOps) -> str:
    sizes = known_sizes(fed, ops)
    if not sizes:
        return f"{_NO_SHAPE} Add it, such as 'shape: []' for a single value."
    return f"{_NO_SHAPE} Its first ops take {sizes}: add the shape that the app feeds."


def _about_file(source: LoadedSource, image: DecodedImage) -> str:
    (spec,) = specs_of(source.graph, [str(image.ref)])
    return (
        "The content of an image file, which the graph decodes. To decode in the app, make "
        f"{described([spec])} the input instead, and feed {image.formula} for pixels x from 0 to "
        "255."
    )


def _about_image(spec: TensorSpec, image: DecodedImage) -> str:
    return (
        f"Images are decoded inside the graph, from a constant: feed {described([spec])} instead, "
        f"as {image.formula} for pixels x from 0 to 255."
    )
