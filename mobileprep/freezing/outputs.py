"""The tensors that a freeze keeps, found by tensor name or through a signature."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mobileprep.errors import InvalidGraphError, UsageError, nearest_hint
from mobileprep.freezing.model import LoadedSource, Signature
from mobileprep.freezing.options import FreezeOptions
from mobileprep.ir.refs import parse_ref
from mobileprep.opdefs.signatures import output_count

_DEFAULT: Final = "serving_default"

_FLAGS: Final = (
    "name them by `outputs:` of a recipe, --output_node_names of `freeze`, --fetch of `run`, "
    "--output_layer of `benchmark`, or --outputs of `migrate` and `tflite`; other verbs take the "
    "graph that `freeze` writes"
)


def chosen_signature(source: LoadedSource, name: str) -> Signature | None:
    """The signature of that name, or for an empty name the default or the only one, or None.

    Raises:
        UsageError: there is none of that name.
    """
    signatures = source.signatures
    if name:
        if name not in signatures:
            message = f"there is no signature {name!r}"
            hint = nearest_hint(name, signatures) or _there_are(signatures)
            raise UsageError(message, hint, source.where)
        return signatures[name]
    if _DEFAULT in signatures:
        return signatures[_DEFAULT]
    return next(iter(signatures.values())) if len(signatures) == 1 else None


def output_tensors(source: LoadedSource, options: FreezeOptions) -> tuple[str, ...]:
    """The names of the tensors to keep, each once.

    Raises:
        UsageError: none is named and no signature tells, or there is no such signature.
        InvalidGraphError: a name is neither a tensor's nor a signature's; it names the nearest.
    """
    signature = chosen_signature(source, options.signature)
    if not options.outputs:
        if signature is None:
            message = "no outputs are named"
            raise UsageError(message, f"{_likely(source, signature)}; {_FLAGS}", source.where)
        return _tensors(signature, source)
    found: list[str] = []
    for name in options.outputs:
        if _is_tensor(source, name):
            found.append(name)
        elif signature is not None and name in signature.outputs:
            found.append(signature.outputs[name].name)
        elif name in source.signatures:
            found += _tensors(source.signatures[name], source)
        else:
            raise _unknown(name, signature, source)
    _check(found, source)
    return tuple(dict.fromkeys(found))


def _is_tensor(source: LoadedSource, name: str) -> bool:
    ref = parse_ref(name)
    node = source.graph.get(ref.node)
    if node is None or ref.is_control:
        return False
    count = output_count(node, source.graph.library)
    if ref.index and count is not None and ref.index >= count:
        message = f"the output {name!r} is not there: {ref.node!r} ({node.op}) gives {count}"
        raise InvalidGraphError(message, "count from 0", source.where)
    return True


def _tensors(signature: Signature, source: LoadedSource) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(spec.name for spec in signature.outputs.values()))
    _check(names, source)
    return names


def _check(names: Iterable[str], source: LoadedSource) -> None:
    for name in names:
        if parse_ref(name).node not in source.graph:
            message = f"a signature names the output {name!r}, which is not in the graph"
            raise InvalidGraphError(message, "export the model again", source.where)


def _unknown(name: str, signature: Signature | None, source: LoadedSource) -> InvalidGraphError:
    message = f"the output {name!r} is not in the graph"
    known = [*source.graph.by_name, *source.signatures, *(signature.outputs if signature else ())]
    near = nearest_hint(parse_ref(name).node, known)
    likely = _likely(source, signature)
    return InvalidGraphError(message, f"{near} {likely}" if near else likely, source.where)


def _likely(source: LoadedSource, signature: Signature | None) -> str:
    from mobileprep.freezing.guess import described, guess  # only failures need it

    found = guess(source, signature).outputs
    hint = f"likely outputs: {described(found)}" if found else "name what the app fetches"
    if source.signatures and signature is None:
        hint += f"; signatures: {_there_are(source.signatures)}"
    return hint


def _there_are(signatures: Iterable[str]) -> str:
    return ", ".join(sorted(signatures)) or "there are none"
