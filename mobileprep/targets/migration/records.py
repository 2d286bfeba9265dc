"""What is told of a graph's way to a runtime."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Verdict = Literal["as it is", "after changes", "no"]
Kind = Literal["pictures", "sounds", "texts", "queues", "dropout", "variables", "shapes"]


class Lack(Struct, frozen=True):
    """What a runtime lacks for the graph as it is.

    Args:
        op: whose; empty for the graph as a whole.
        node: the first one that it concerns.
        count: how many it concerns.
        reason: why.
        mend: what to do.
    """

    op: str
    node: str
    count: int
    reason: str
    mend: str


class RouteSize(Struct, frozen=True):
    """A model file.

    Args:
        form: how weights are stored: ``float``, ``float16`` or ``weights`` (8 bits).
        bytes: the file's.
        share: of the bytes of the frozen graph between its inputs and outputs.
    """

    form: str
    bytes: int
    share: float


class Route(Struct, frozen=True):
    """A graph's way to one runtime.

    Args:
        runtime: which.
        verdict: whether the graph runs there as it is, after the changes below, or not at all.
        lacks: what the runtime lacks for the graph as it is.
        left: what it still lacks after the changes.
        inputs: what is fed then.
        transforms: what is done to the graph then.
        operators: how many nodes or operators run; 0 where nothing does.
        kinds: how many kinds of operators, or kernels, the runtime has to have for it.
        code_bytes: about how many bytes of code these kernels are; None where that is not known.
        sizes: of the files; none where nothing runs.
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
    """What belongs into the app, or to training alone, whichever runtime it is.

    Args:
        kind: what it is about.
        op: of the first node.
        node: the first node.
        count: how many nodes.
        text: what to do.
        inputs: the tensors to feed in its place; none where nothing has to be fed.
    """

    kind: Kind
    op: str
    node: str
    count: int
    text: str
    inputs: tuple[str, ...] = ()


class Migration(Struct, frozen=True):
    """A graph's ways to all runtimes.

    Args:
        inputs: what is fed.
        outputs: what is fetched.
        nodes: how many there are between them.
        bytes: of the frozen graph between them.
        routes: one for each runtime.
        advice: what to cut off, or to feed instead.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: int
    bytes: int
    routes: tuple[Route, ...]
    advice: tuple[Advice, ...]
