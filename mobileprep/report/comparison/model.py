"""What a comparison of two reports tells, as data."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from mobileprep.frozen import dataclass

What: TypeAlias = Literal["setting", "source", "tool"]
Kind: TypeAlias = Literal["changed", "added", "removed"]
State: TypeAlias = Literal["same", "changed", "added", "removed"]


@dataclass(frozen=True)
class Figure:
    """A number that is another.

    Args:
        name: what it is of, such as ``model bytes``, an op or a tensor.
        before: what it was; None where there was none, or it is no finite number.
        after: what it is.
    """

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class Cause:
    """What a build was made from, and is another now.

    Args:
        what: ``setting`` for a key of the recipe, ``source`` for the content of a file, ``tool``
            for the version of mobileprep.
        key: the key's path with dots, ``transforms.quantize_weights.minimum_size``; the file's
            name; or ``mobileprep``.
        before: what it was; of a file its sha256; None where there was none.
        after: what it is.
        place: ``file:line:column`` in the recipe; empty where that is not known.
    """

    what: What
    key: str
    before: Any
    after: Any
    place: str = ""


@dataclass(frozen=True)
class StepChange:
    """A transform that does something else than before.

    Args:
        kind: whether the step itself is new, is gone, or does another thing.
        number: which step of the chain it is, from 1; of one that is gone, which it was.
        name: the transform's.
        causes: the recipe's keys that are another for this very step. Without any it does another
            thing because of what comes before it.
        figures: what it does by itself: by how much nodes, parameters and bytes grow, how many
            places it matched, how many nodes it added, removed and changed, and how far outputs
            are off after it.
    """

    kind: Kind
    number: int
    name: str
    causes: tuple[str, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class RangeChange:
    """A tensor whose range is another; None on the side that has no range for it."""

    tensor: str
    before: tuple[float, ...] | None
    after: tuple[float, ...] | None


@dataclass(frozen=True)
class NodeChange:
    """A node of the model that ships, or part of it, that is another.

    Args:
        kind: "added", "removed", "op", "inputs", "attribute", "constant" and the like.
        name: the node's.
        told: the difference in words.
    """

    kind: str
    name: str
    told: str


@dataclass(frozen=True)
class NodeChanges:
    """The two models, node by node, whatever nodes are called.

    Args:
        matched: how many nodes of both are matched, equal or changed.
        renamed: how many of those have another name.
        changes: what differs.
        untold: why nothing is told; empty where the models were compared.
    """

    matched: int = 0
    renamed: int = 0
    changes: tuple[NodeChange, ...] = ()
    untold: str = ""


@dataclass(frozen=True)
class Comparison:
    """What a target's build differs in from an earlier one.

    Args:
        recipe: the recipe's name.
        target: the target's name.
        state: whether anything differs, or the target itself is new or gone.
        causes: what the build was made from, and is another.
        untold: why causes may be missing; empty where all are known.
        steps: the transforms that do something else.
        sizes: of the source, the model and each file.
        ops: how many nodes of each op.
        accuracies: each metric of the model, and of the source.
        outputs: how far each output is from the source's, as a share of its peak.
        ranges: of tensors, for the steps that quantize.
        tensors: the signal to noise of quantized tensors, in dB.
        limits: what each limit of the budget is compared with.
        kernels: what the header for each release registers.
        warnings: those that are new.
        solved: warnings that are gone.
        nodes: the two models; None where they were not to be compared.
    """

    recipe: str
    target: str
    state: State
    causes: tuple[Cause, ...] = ()
    untold: str = ""
    steps: tuple[StepChange, ...] = ()
    sizes: tuple[Figure, ...] = ()
    ops: tuple[Figure, ...] = ()
    accuracies: tuple[Figure, ...] = ()
    outputs: tuple[Figure, ...] = ()
    ranges: tuple[RangeChange, ...] = ()
    tensors: tuple[Figure, ...] = ()
    limits: tuple[Figure, ...] = ()
    kernels: tuple[Figure, ...] = ()
    warnings: tuple[str, ...] = ()
    solved: tuple[str, ...] = ()
    nodes: NodeChanges | None = None
