"""Ops that search texts with regular expressions."""

from __future__ import annotations

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.regular_expressions import compiled
from mobileprep.numerics.texts import each_text, one_text, texts
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import shape_fn


@kernel("RegexReplace")
def regex_replace(node: Node, x: Array, pattern: Array, rewrite: Array) -> Array:
    """Texts with what matches rewritten: every match, or the first."""
    return _rewritten(node, x, one_text(pattern), one_text(rewrite))


shape_fn("RegexReplace")(unchanged)


flop_rule("RegexReplace")(free)


def _rewritten(node: Node, x: Array, pattern: bytes, rewrite: bytes) -> Array:
    expression = compiled(pattern)
    everywhere = node.attr_bool("replace_global", True)
    return each_text(lambda text: expression.replaced(rewrite, text, everywhere=everywhere), x)


@kernel("StaticRegexReplace")
def static_regex_replace(node: Node, x: Array) -> Array:
    """As ``RegexReplace``, with the attributes ``pattern`` and ``rewrite``."""
    return _rewritten(node, x, _attribute(node, "pattern"), _attribute(node, "rewrite"))


shape_fn("StaticRegexReplace")(unchanged)


flop_rule("StaticRegexReplace")(free)


def _attribute(node: Node, name: str) -> bytes:
    value = node.attrs[name].value if name in node.attrs else node.attr_str(name)
    return value if isinstance(value, bytes) else node.attr_str(name).encode()


@kernel("RegexFullMatch")
def regex_full_match(node: Node, x: Array, pattern: Array) -> Array:
    """Whether the whole of each text matches."""
    return _matched(x, one_text(pattern))


shape_fn("RegexFullMatch")(unchanged)


flop_rule("RegexFullMatch")(free)


def _matched(x: Array, pattern: bytes) -> Array:
    expression = compiled(pattern)
    found = [expression.matches(text) for text in texts(x)]
    return np.array(found, dtype=bool).reshape(x.shape)


@kernel("StaticRegexFullMatch")
def static_regex_full_match(node: Node, x: Array) -> Array:
    """As ``RegexFullMatch``, with the attribute ``pattern``."""
    return _matched(x, _attribute(node, "pattern"))


shape_fn("StaticRegexFullMatch")(unchanged)


flop_rule("StaticRegexFullMatch")(free)
