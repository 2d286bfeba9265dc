"""Ops that turn encoded texts into characters, or into another encoding."""

from __future__ import annotations

import codecs
import re
from typing import Final

import numpy as np

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.texts import each_text, texts
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import two_vectors, unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.ragged.row_splits import splits_of
from mobileprep.ops.shape_function import shape_fn

_CODECS: Final = {"UTF-8": "utf-8", "UTF-16-BE": "utf-16-be", "UTF-32-BE": "utf-32-be"}


_LAST_CHARACTER: Final = 0x10FFFF


# Half of a pair, which no decoder of a well-formed text gives.
_MARK: Final = "\udc80"


_MARKING: Final = "mobileprep.mark"


_CONTROLS = re.compile("[\0-\x1f]")


def _mark(error: UnicodeError) -> tuple[str, int]:
    """One mark for what cannot be decoded."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _MARK, error.end


codecs.register_error(_MARKING, _mark)


@dataclass(frozen=True)
class _Reader:
    """Decodes texts in the manner that a node's attributes ask for.

    Args:
        codec: Python's name of the encoding.
        errors: strict, replace or ignore.
        replacement: what stands for what cannot be decoded.
        controls: whether control characters count as what cannot be decoded.
        strict_controls: whether they do where errors is strict; elsewhere they are replaced then.
    """

    codec: str
    errors: str
    replacement: str
    controls: bool
    strict_controls: bool

    @staticmethod
    def of(node: Node) -> _Reader:
        """The reader of a node."""
        code = node.attr_int("replacement_char", 0xFFFD)
        errors = node.attr_str("errors", "replace")
        if not 0 <= code <= _LAST_CHARACTER or errors not in ("strict", "replace", "ignore"):
            message = f"no character {code}, or no way {errors!r} of treating errors"
            raise ValueError(message)
        controls = node.attr_bool("replace_control_characters", False)
        codec = _codec(node, "input_encoding")
        return _Reader(codec, errors, chr(code), controls, node.op == "UnicodeTranscode")

    def read(self, text: bytes) -> str:
        """The characters of a text.

        Raises:
            ValueError: the text is not so encoded, and ``errors`` is strict.
        """
        found = text.decode(self.codec, _MARKING)
        marked = _CONTROLS.sub(_MARK, found) if self.controls else found
        if self.errors == "strict" and _MARK in (marked if self.strict_controls else found):
            message = f"the text {text[:40]!r} is no {self.codec}"
            raise ValueError(message)
        return marked.replace(_MARK, "" if self.errors == "ignore" else self.replacement)


def _codec(node: Node, attribute: str) -> str:
    name = node.attr_str(attribute).upper()
    codec = _CODECS.get(name)
    if codec is None:
        message = f"node {node.name!r} ({node.op}) has the encoding {name!r}"
        raise UnsupportedError(message, f"use one of {', '.join(_CODECS)}")
    return codec


@kernel("UnicodeDecode")
def unicode_decode(node: Node, x: Array) -> tuple[Array, Array]:
    """The characters of texts as numbers.

    Returns:
        The row splits, a row for each text, and the numbers of all characters, int32.
    """
    reader = _Reader.of(node)
    strings = [reader.read(text) for text in texts(x)]
    splits = splits_of(np.array([len(s) for s in strings], np.int64))
    numbers = np.frombuffer("".join(strings).encode("utf-32-le", "surrogatepass"), "<i4")
    return splits.astype(node.attr_dtype("Tsplits", DType.INT64).numpy), numbers


shape_fn("UnicodeDecode")(two_vectors)


flop_rule("UnicodeDecode")(free)


@kernel("UnicodeTranscode")
def unicode_transcode(node: Node, x: Array) -> Array:
    """Texts in another encoding."""
    reader, target = _Reader.of(node), _codec(node, "output_encoding")
    return each_text(lambda text: reader.read(text).encode(target, "replace"), x)


shape_fn("UnicodeTranscode")(unchanged)


flop_rule("UnicodeTranscode")(free)


shape_fn("UnicodeScript")(unchanged)
