"""Results of a migration to other runtimes."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Verdict = Literal["as it is", "after changes", "no"]
Kind = Literal["images", "audio", "strings", "queues", "dropout", "variables", "shapes"]


class Lack(Struct, frozen=True):
    """An unsupported part of a graph.

    Args:
        op: the op; empty for the graph as a whole.
        node: first affected node.
        count: number of affected nodes.
        reason: why it is not supported.
        mend: the fix.
    """

    op: str
    node: str
    count: int
    reason: str
    mend: str


class RouteSize(Struct, frozen=True):
    """Size of a model file.

    Args:
        form: dtype of the weights: ``float``, ``float16``, or ``weights`` (8-bit).
        bytes: size of the file in bytes.
        share: fraction of the size of the pruned frozen graph.
    """

    form: str
    bytes: int
    share: float


class Route(Struct, frozen=True):
    """Migration of a graph to one runtime.

    Args:
        runtime: name of the runtime.
        verdict: whether the graph runs as it is, after the changes below, or not at all.
        lacks: unsupported parts of the original graph.
        left: unsupported parts after the changes.
        inputs: inputs after the changes.
        transforms: transforms to apply.
        operators: number of nodes or operators that run; 0 if the graph does not run.
        kinds: number of different operators or kernels that the runtime needs.
        code_bytes: estimated size of these kernels' code in bytes; None if unknown.
        sizes: sizes of the model files; empty if the graph does not run.
    """

    runtime: str
    verdict: Verdict
    lacks: tuple[Lack, ...] = ()
    left: tuple[Lack, ...] = ()
    inputs: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    operators: int = 0
    kinds: int = 0
    code_bytes: int | None = None
    sizes: tuple[RouteSize, ...] = ()


class Advice(Struct, frozen=True):
    """A part of a graph that belongs in the app or in training, regardless of the runtime.

    Args:
        kind: kind of the part.
        op: op of the first node.
        node: name of the first node.
        count: number of nodes.
        text: recommended change.
        inputs: tensors to feed instead; empty if none are needed.
    """

    kind: Kind
    op: str
    node: str
    count: int
    text: str
    inputs: tuple[str, ...] = ()


class Migration(Struct, frozen=True):
    """Migration of a graph to all runtimes.

    Args:
        inputs: the inputs.
        outputs: the outputs.
        nodes: number of nodes between inputs and outputs.
        bytes: size of the pruned frozen graph in bytes.
        routes: result for each runtime.
        advice: parts to remove or to replace with inputs.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: int
    bytes: int
    routes: tuple[Route, ...]
    advice: tuple[Advice, ...]
