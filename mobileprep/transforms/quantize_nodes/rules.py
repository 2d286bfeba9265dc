"""Rules: which nodes are quantized, and how."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias, get_args

from mobileprep.errors import UnsupportedError, nearest_hint
from mobileprep.frozen import dataclass
from mobileprep.ir.node import Node
from mobileprep.numerics.ranges import ChannelMethod
from mobileprep.numerics.regular_expressions import compiled
from mobileprep.transforms.base import refuse
from mobileprep.transforms.quantize_nodes.weights import Granularity, WeightSettings

Mode: TypeAlias = Literal["nodes", "weights", "float"]

_KEYS: Final = ("mode", "bits", "granularity", "method", "percentile", "ops", "nodes")
_CHOICES: Final = {
    "mode": get_args(Mode),
    "granularity": get_args(Granularity),
    "method": get_args(ChannelMethod),
    "bits": ("2", "3", "4", "5", "6", "7", "8"),
}
_LEAST_PERCENTILE: Final = 50
_MOST_PERCENTILE: Final = 100
_HINT: Final = "write it as 'mode=float ops=Conv2D,MatMul nodes=REGEX', blanks between"
# What has an eight-bit form: a rule that does not say what is done stores the weights of others.
_EIGHTBIT: Final = frozenset({"Conv2D", "MatMul"})


@dataclass(frozen=True)
class Settings:
    """What is done to a layer.

    Args:
        mode: ``nodes`` computes in eight bits, ``weights`` only stores the weights so, and
            ``float`` does neither.
        weights: how its weights are quantized.
    """

    mode: Mode
    weights: WeightSettings = field(default_factory=WeightSettings)


@dataclass(frozen=True)
class LayerRule:
    """Settings for some nodes; None leaves what earlier rules say.

    Args:
        nodes: a regular expression that is looked for in a node's name.
        ops: ops, or none for all.
        mode: see ``Settings``.
        bits: see ``WeightSettings``, as are the others.
    """

    nodes: str = ""
    ops: tuple[str, ...] = ()
    mode: Mode | None = None
    bits: int | None = None
    granularity: Granularity | None = None
    method: ChannelMethod | None = None
    percentile: float | None = None

    def fits(self, node: Node) -> bool:
        """Whether the rule is about a node."""
        if self.ops and node.op not in self.ops:
            return False
        return not self.nodes or compiled(self.nodes.encode()).is_in(node.name.encode())


class Rules:
    """Rules in the order in which they were given: the last one that fits a node decides.

    Args:
        transform: the name of the transform, for errors.
        texts: a rule each: words ``key=value`` with blanks between.
        eightbit: ops that compute in eight bits by a rule that does not say what is done.

    Raises:
        TransformError: a rule is not understood.
    """

    def __init__(
        self, transform: str, texts: Sequence[str], eightbit: frozenset[str] = _EIGHTBIT
    ) -> None:
        self._transform = transform
        self._eightbit = eightbit
        self._rules = [_parsed(transform, text) for text in texts]

    def settings(self, node: Node) -> Settings:
        """What is done to a layer.

        Raises:
            TransformError: a regular expression cannot be run on its name.
        """
        fitting = [rule for rule in self._rules if self._fits(rule, node)]
        return Settings("nodes") if not fitting else self._by_rule(node, fitting[-1])

    def decide(self, node: Node) -> bool:
        """Whether any rule is about a node.

        Raises:
            TransformError: a regular expression cannot be run on its name.
        """
        return any(self._fits(rule, node) for rule in self._rules)

    def _by_rule(self, node: Node, rule: LayerRule) -> Settings:
        given = {
            name: value
            for name in ("bits", "granularity", "method", "percentile")
            if (value := getattr(rule, name)) is not None
        }
        # A rule that only says how means that it is to be done.
        mode = rule.mode or ("nodes" if node.op in self._eightbit else "weights")
        return Settings(mode, WeightSettings(**given))

    def _fits(self, rule: LayerRule, node: Node) -> bool:
        try:
            return rule.fits(node)
        except UnsupportedError as error:
            raise refuse(self._transform, error.message, error.hint) from error


def _parsed(transform: str, text: str) -> LayerRule:
    given: dict[str, Any] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if key not in _KEYS or not (equals and value) or key in given:
            message = f"the rule {text!r} has the word {word!r}, which is not understood"
            raise refuse(transform, message, nearest_hint(key, _KEYS) or _HINT)
        allowed = _CHOICES.get(key, (value,))
        if value not in allowed:
            message = f"the rule {text!r} gives {key} the value {value!r}"
            raise refuse(transform, message, f"one of {', '.join(allowed)}")
        given[key] = value
    if not given.keys() - {"nodes", "ops"}:
        raise refuse(transform, f"the rule {text!r} says nothing of what is to be done", _HINT)
    _check_expression(transform, given.get("nodes", ""))
    if "bits" in given:
        given["bits"] = int(given["bits"])
    if "percentile" in given:
        given["percentile"] = _percentile(transform, text, given)
    given["ops"] = tuple(filter(None, given.get("ops", "").split(",")))
    return LayerRule(**given)


def _percentile(transform: str, text: str, given: Mapping[str, str]) -> float:
    try:
        found = float(given["percentile"])
    except ValueError:
        found = math.nan
    if not _LEAST_PERCENTILE <= found <= _MOST_PERCENTILE:
        message = f"the rule {text!r} gives percentile the value {given['percentile']!r}"
        raise refuse(transform, message, "a number from 50 to 100")
    if given.get("method") != "percentile":
        message = f"the rule {text!r} gives percentile without its method"
        raise refuse(transform, message, "write method=percentile as well")
    return found


def _check_expression(transform: str, nodes: str) -> None:
    try:
        compiled(nodes.encode())
    except (ValueError, UnsupportedError) as error:
        raise refuse(transform, str(error), "mend the regular expression of the rule") from error
