"""Kernels that join, split, search and convert texts."""

from __future__ import annotations

import base64
import binascii
import itertools
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._common import axis_of, integers, scalar
from mobileprep.ops.regular_expressions import compiled, decoded, encoded, replaced
from mobileprep.ops.text import as_texts, each_text, one_text, texts

_ASCII_SPACE = b" \t\n\v\f\r"


@kernel("StringJoin")
def string_join(node: Node, *parts: Array) -> Array:
    """Texts joined element by element; scalars go with every element."""
    separator = node.attr_str("separator", "").encode()
    shape = next((p.shape for p in parts if p.ndim), ())
    if any(p.ndim and p.shape != shape for p in parts):
        message = f"the shapes {[list(p.shape) for p in parts]} differ"
        raise ValueError(message)
    columns = [texts(np.broadcast_to(p, shape)) for p in parts]
    rows = zip(*columns, strict=True)
    return as_texts(map(separator.join, rows), shape)


@kernel("ReduceJoin")
def reduce_join(node: Node, x: Array, indices: Array) -> Array:
    """Texts joined along axes, the first axis named being the slowest."""
    separator = node.attr_str("separator", "").encode()
    axes = [axis_of(a, x.ndim) for a in integers(indices)]
    if len(set(axes)) != len(axes):
        message = f"the axes {axes} are not all different"
        raise ValueError(message)
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = tuple(x.shape[a] for a in kept)
    width = int(np.prod([x.shape[a] for a in axes]))
    rows = x.transpose([*kept, *axes]).reshape(-1, width) if x.size else _empty_rows(shape, width)
    if node.attr_bool("keep_dims", False):
        shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    return as_texts((separator.join(row) for row in rows.tolist()), shape)


def _empty_rows(shape: tuple[int, ...], width: int) -> Array:
    return np.empty((int(np.prod(shape)), width), dtype=object)


@kernel("StringSplit")
def string_split(node: Node, x: Array, delimiter: Array) -> tuple[Array, Array, Array]:
    """Texts cut at any of the delimiter's characters, as a sparse matrix."""
    marks = one_text(delimiter)
    skip = node.attr_bool("skip_empty", True)
    cut = re.compile(b"[" + re.escape(marks) + b"]") if marks else None

    def parts(text: bytes) -> list[bytes]:
        if cut is None:
            return [text[i : i + 1] for i in range(len(text))]
        found: list[bytes] = cut.split(text) if text or not skip else []
        return [p for p in found if p] if skip else found

    return _sparse(x, parts)


@kernel("StringSplitV2")
def string_split_v2(node: Node, x: Array, separator: Array) -> tuple[Array, Array, Array]:
    """Texts cut at a separator, or, where that is empty, at white space, as a sparse matrix."""
    mark, most = one_text(separator), node.attr_int("maxsplit", -1)

    def parts(text: bytes) -> list[bytes]:
        if not mark:
            return text.split(None, most) if most else [text.lstrip(_ASCII_SPACE)][: len(text)]
        return text.split(mark, most)

    return _sparse(x, parts)


def _sparse(x: Array, cut: Callable[[bytes], Sequence[bytes]]) -> tuple[Array, Array, Array]:
    """Indices, values and shape of a matrix whose rows are the parts of each text."""
    if x.ndim != 1:
        message = f"a vector of texts is needed, not the shape {list(x.shape)}"
        raise ValueError(message)
    rows = [cut(text) for text in texts(x)]
    indices = [(i, j) for i, row in enumerate(rows) for j in range(len(row))]
    width = max(map(len, rows), default=0)
    values = list(itertools.chain.from_iterable(rows))
    return (
        np.array(indices, dtype=np.int64).reshape(-1, 2),
        as_texts(values, (len(values),)),
        np.array([len(rows), width], dtype=np.int64),
    )


@kernel("RegexReplace")
def regex_replace(node: Node, x: Array, pattern: Array, rewrite: Array) -> Array:
    """Texts with what matches a regular expression rewritten."""
    return _rewritten(node, x, one_text(pattern), one_text(rewrite))


@kernel("StaticRegexReplace")
def static_regex_replace(node: Node, x: Array) -> Array:
    """As ``RegexReplace``, with the attributes ``pattern`` and ``rewrite``."""
    return _rewritten(node, x, *(encoded(node.attr_str(n)) for n in ("pattern", "rewrite")))


def _rewritten(node: Node, x: Array, pattern: bytes, rewrite: bytes) -> Array:
    expression, new = compiled(pattern), decoded(rewrite)
    everywhere = node.attr_bool("replace_global", True)
    return each_text(
        lambda t: encoded(replaced(expression, new, decoded(t), everywhere=everywhere)), x
    )


@kernel("RegexFullMatch", "StaticRegexFullMatch")
def regex_full_match(node: Node, x: Array, pattern: Array | None = None) -> Array:
    """Whether each whole text matches a regular expression, an input or an attribute."""
    given = encoded(node.attr_str("pattern")) if pattern is None else one_text(pattern)
    expression = compiled(given)
    found = [expression.fullmatch(decoded(t)) is not None for t in texts(x)]
    return np.array(found, dtype=bool).reshape(x.shape)


@kernel("Substr")
def substr(node: Node, x: Array, positions: Array, lengths: Array) -> Array:
    """Parts of texts, counted in bytes or characters; negative positions count from the end."""
    characters = node.attr_str("unit", "BYTE") == "UTF8_CHAR"
    shape = np.broadcast_shapes(x.shape, positions.shape, lengths.shape)
    elements = texts(np.broadcast_to(x, shape))
    starts, counts = (np.broadcast_to(a, shape).ravel().tolist() for a in (positions, lengths))

    def parts() -> Iterator[bytes]:
        for text, start, count in zip(elements, starts, counts, strict=True):
            yield encoded(_part(decoded(text), start, count)) if characters else _part(
                text, start, count
            )

    return as_texts(parts(), shape)
