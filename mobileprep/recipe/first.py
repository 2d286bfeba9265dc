"""Generate a first recipe: the known facts of a model, with comments for the rest."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

DEFAULT_CHAIN: Final = """\
transforms:
  - choose_inference
  - remove_dropout
  - remove_nodes: {op: [CheckNumerics]}
  - optimize  # unused nodes, constants and batch norms folded, duplicates merged
"""
"""Default chain in a recipe.

It folds all batch norms: after a convolution or matrix product with a single consumer, at most a
bias remains.
"""


_WIDTH: Final = 92
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*\Z")
# Plain words that YAML 1.1 or 1.2 parsers do not read as strings.
_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


class DraftInput(Struct, frozen=True):
    """An input: its type and shape as far as they are known, and a comment."""

    name: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    remark: str = ""


class Draft(Struct, frozen=True):
    """The contents of a first recipe.

    Args:
        name: name of the recipe.
        modeline: comment that names the schema for editors.
        source: keys of ``source`` and their values.
        lowered: reason for lowering loops and conditionals; empty if they are not lowered.
        inputs: inputs of the model.
        outputs: names of the outputs.
        about: comments at the top, above ``inputs``, and above ``outputs``.
        check: largest difference of an output from the source, as a share; None for no check.
        unchecked: reason why there is no check.
        quantize: the value of ``quantize`` as YAML; empty for float weights.
        then: the value of ``then`` as YAML: transforms before quantization.
        about_weights: reasons for the quantization, one sentence each.
        validation: file of samples and the name of its array of labels (empty without labels).
        reading: keys of ``data`` and their values as YAML for a directory of images.
        about_data: comments above ``validation``.
        release: TensorFlow release of the app.
        release_reason: reason if the release is not the default; otherwise empty.
        preprocessing: steps that the app does instead of the first ops; empty for none.
        stated: keys of the preprocessing of images with which a graph without a decoder fits them.
        downgrade: reason why ``downgrade`` ends the chain; empty if it does not.
    """

    name: str
    modeline: str
    source: tuple[tuple[str, str | tuple[str, ...]], ...]
    inputs: tuple[DraftInput, ...] = ()
    outputs: tuple[str, ...] = ()
    about: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] = ((), (), ())
    check: float | None = None
    unchecked: str = ""
    quantize: str = ""
    then: str = ""
    about_weights: tuple[str, ...] = ()
    validation: tuple[str, str] | None = None
    reading: tuple[tuple[str, str], ...] = ()
    about_data: tuple[str, ...] = ()
    release: str = "1.15"
    release_reason: str = ""
    downgrade: str = ""
    lowered: str = ""
    preprocessing: str = ""
    stated: tuple[tuple[str, str], ...] = ()


def recipe_text(draft: Draft) -> str:
    """Return the recipe as YAML."""
    top, inputs, outputs = draft.about
    lines = [draft.modeline]
    lines += _comments(top)
    lines += ["version: 1", f"name: {quoted(draft.name)}", "source:"]
    lines += [f"  {key}: {_value(value)}" for key, value in draft.source]
    if draft.lowered:
        about = f"Loops and conditionals are lowered, as otherwise {draft.lowered}."
        lines += [*_comments([about]), "freeze: {control_flow: lower}"]
    lines += [*_comments(inputs), *_inputs(draft.inputs), *_comments(outputs)]
    lines += ["outputs:" if draft.outputs else "outputs: []"]
    lines += [f"  - {quoted(name)}" for name in draft.outputs]
    if draft.preprocessing:
        about = f"The app decodes, and does the first ops: {draft.preprocessing}."
        lines += [*_comments([about]), "preprocessing: cut"]
    if draft.stated:
        about = "The app prepares pixels of 0 to 255 like this, as the code of 'integration' does."
        keys = ", ".join(f"{key}: {value}" for key, value in draft.stated)
        lines += [*_comments([about]), f"preprocessing: {{{keys}}}"]
    lines += [*DEFAULT_CHAIN.splitlines(), *_downgrade(draft), *_checks(draft)]
    lines += ["targets:", "  phone:", "    platform: android", *_quantize(draft)]
    reason = _comments([draft.release_reason] if draft.release_reason else [])
    lines += [f"    {line}" for line in reason]
    lines += [f'    registration: {{tensorflow: ["{draft.release}"]}}']
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Return a string as a YAML value, in double quotes if YAML could misread it."""
    if _PLAIN.match(text) and text.lower() not in _WORDS:
        return text
    return '"' + "".join(map(_escaped, text.replace("$", "$$"))) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _value(value: str | tuple[str, ...]) -> str:
    return quoted(value) if isinstance(value, str) else f"[{', '.join(map(quoted, value))}]"


def _inputs(inputs: Sequence[DraftInput]) -> Iterator[str]:
    yield "inputs:" if inputs else "inputs: {}"
    for draft in inputs:
        yield from (f"  {line}" for line in _comments([draft.remark] if draft.remark else []))
        fields = [f"dtype: {draft.dtype}"] if draft.dtype else []
        fields += [] if draft.shape is None else [f"shape: {list(draft.shape)}"]
        yield f"  {quoted(draft.name)}: {{{', '.join(fields)}}}"


def _downgrade(draft: Draft) -> Iterator[str]:
    if draft.downgrade:
        yield from (f"  {line}" for line in _comments([draft.downgrade]))
        yield "  - downgrade"


def _checks(draft: Draft) -> Iterator[str]:
    if draft.unchecked:
        yield from _comments([f"Not checked: {draft.unchecked}"])
    if draft.check is not None:
        yield from check_section(draft.check)
    if draft.validation is not None:
        data, labels = draft.validation
        yield from _comments(draft.about_data)
        yield "validation:"
        if draft.reading:
            yield "  data:"
            yield f"    pictures: {quoted(data)}"
            yield from (f"    {key}: {value}" for key, value in draft.reading)
            yield "  max_drop: 0.01"
            return
        yield f"  data: {quoted(data)}"
        yield f"  labels: {quoted(labels)}" if labels else "  metric: agreement  # without labels"
        yield "  max_drop: 0.01"


def check_section(limit: float) -> Iterator[str]:
    """Yield the lines that compare each step with the source.

    Args:
        limit: largest difference of an output, as a share of its largest magnitude.
    """
    yield "# Real samples are better than random ones: data: FILE.npz, an array for each input."
    yield f"check: {{max_difference: {limit:g}}}"


def _quantize(draft: Draft) -> Iterator[str]:
    yield from (f"    {line}" for line in _comments(draft.about_weights))
    if draft.then:
        yield f"    then: {draft.then}"
    if draft.quantize:
        yield f"    quantize: {draft.quantize}"


def _comments(texts: Iterable[str]) -> Iterator[str]:
    """Wrap strings as comment lines; replace characters that could end a comment."""
    for text in texts:
        safe = "".join(c if c.isprintable() else "?" for c in text)
        for line in textwrap.wrap(safe, _WIDTH, break_on_hyphens=False):
            yield f"# {line}"
