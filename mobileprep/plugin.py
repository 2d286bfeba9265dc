"""What a transform of one's own needs, and may rely on; ``docs/how-to/custom-transforms.md`` shows one.

A transform is a class ``Mine(Transform, frozen=True)`` under ``@transform("its_name")``; its fields
are its parameters. ``apply`` gets a ``Graph`` of ``Node``s and a ``Context``, never
changes them, and returns a ``Result``:

- ``op`` writes a pattern, ``Rule`` says what replaces it, ``rewrite`` does so wherever it fits and
  answers with a ``Rewritten``. ``Leave`` leaves a place with a reason. ``Match`` has the nodes of a
  place by the labels of the pattern, and ``GraphMatcher`` finds the places alone.
- ``constant`` makes a Const node of a ``Tensor``, which ``Tensor.of(array)`` makes of an array;
  ``attrs`` makes attributes, ``Ref`` names a tensor as an input, ``DType`` lists the types, and
  ``unique_name`` finds a name that no node has.
- Raise ``TransformError`` where the transform cannot do its work on the graph; a chain then ends,
  or goes on where its step has ``ignore_errors``.
"""

from __future__ import annotations

from mobileprep.errors import TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.pattern import GraphMatcher, Match, OpTypePattern, op
from mobileprep.graph.refs import Ref, unique_name
from mobileprep.graph.rewrite import Leave, Rewritten, Rule, rewrite
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Context, Result, Transform, transform

__all__ = [
    "Context",
    "DType",
    "Graph",
    "GraphMatcher",
    "Leave",
    "Match",
    "Node",
    "OpTypePattern",
    "Ref",
    "Result",
    "Rewritten",
    "Rule",
    "Tensor",
    "Transform",
    "TransformError",
    "attrs",
    "constant",
    "op",
    "rewrite",
    "transform",
    "unique_name",
]
