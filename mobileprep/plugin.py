"""The API for custom transforms; ``docs/how-to/custom-transforms.md`` has an example.

A transform is a class ``Mine(Transform, frozen=True)`` with ``@transform("its_name")``. Its fields
are its parameters. ``apply`` gets a ``Graph`` of ``Node``s and a ``Context``, which it does not
modify, and returns a ``Result``:

- ``op`` writes a pattern, ``Rule`` describes its replacement, and ``rewrite`` applies it to all
  matches and returns a ``Rewritten``. ``Leave`` skips a match with a reason. ``Match`` has the
  nodes of a match by the labels of the pattern. ``GraphMatcher`` only finds matches.
- ``constant`` creates a Const node of a ``Tensor``, and ``Tensor.of(array)`` converts an array.
  ``attrs`` creates attributes, ``Ref`` names a tensor as an input, ``DType`` lists the dtypes, and
  ``unique_name`` finds an unused name.
- Raise ``TransformError`` if the transform cannot do its work on the graph. The chain then ends, or
  continues if the step has ``ignore_errors``.
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
