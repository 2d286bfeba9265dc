"""Whether a checkpoint holds the variables of a graph, told by their names, shapes and types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from mobileprep.errors import (
    CorruptFileError,
    InvalidGraphError,
    MobileprepError,
    NotDownloadedError,
)
from mobileprep.formats.kinds import looks_like_text
from mobileprep.formats.mapped_file import map_file
from mobileprep.freezing.guess import find_interface
from mobileprep.freezing.model import LoadedSource
from mobileprep.freezing.outputs import chosen_signature
from mobileprep.freezing.source import load_source
from mobileprep.freezing.subgraph import extract
from mobileprep.freezing.trace import variables_of
from mobileprep.freezing.training import is_of_training
from mobileprep.freezing.values import without_value
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import parse_ref

_SHOWN: Final = 5


@dataclass(frozen=True)
class Candidate:
    """A graph that a recipe could name, and the checkpoint that fits it.

    Args:
        path: its file.
        kind: which message the file holds.
        is_text: whether it is text.
        is_of_training: whether it holds losses, gradients or updates.
        variables: those that its likely outputs need.
        own_checkpoint: a MetaGraph's checkpoint of the same name.
        checkpoint: the prefix of the checkpoint that holds them.
        lacking: those that no checkpoint holds.
    """

    path: Path
    kind: Literal["GraphDef", "MetaGraphDef"]
    is_text: bool
    is_of_training: bool
    variables: tuple[Node, ...]
    own_checkpoint: Path | None = None
    checkpoint: Path | None = None
    lacking: tuple[str, ...] = ()

    def check(self) -> Candidate:
        """The candidate itself.

        Raises:
            InvalidGraphError: no checkpoint holds its variables.
        """
        if not self.lacking:
            return self
        names = ", ".join(map(repr, self.lacking[:_SHOWN]))
        more = f" and {len(self.lacking) - _SHOWN} more" if len(self.lacking) > _SHOWN else ""
        message = f"no checkpoint that was looked at holds the variables {names}{more}"
        raise InvalidGraphError(
            message,
            "name the right one, as --checkpoint=PREFIX of `init` or `summarize`",
            str(self.path),
        )


def examined(path: Path, kind: Literal["GraphDef", "MetaGraphDef"]) -> Candidate:
    """What is to be known of a graph's file before a checkpoint is chosen for it.

    Raises:
        CorruptFileError: it is damaged.
        InvalidGraphError: it breaks a rule of graphs.
    """
    source = _load(path, kind, None)
    if not len(source.graph):
        message = "holds no node"
        raise CorruptFileError(message, "is this the file that was meant?", str(path))
    own = source.checkpoint.prefix if source.checkpoint is not None else None
    return Candidate(
        path,
        kind,
        looks_like_text(map_file(path)),
        is_of_training(source.graph),
        tuple(variables_of(_needed_part(source))),
        own,
        own,
    )


def with_checkpoint(candidate: Candidate, prefixes: Sequence[Path]) -> Candidate:
    """The candidate with the first of some checkpoints that holds its variables.

    Args:
        candidate: the graph.
        prefixes: the checkpoints; a MetaGraph's own comes before them.

    Raises:
        NotDownloadedError: none does, and one is a pointer of Git LFS.
    """
    if not candidate.variables or candidate.own_checkpoint is not None:
        return candidate
    fewest: tuple[str, ...] = tuple(v.name for v in candidate.variables)
    pointer: NotDownloadedError | None = None
    for prefix in prefixes:
        try:
            source = _load(candidate.path, candidate.kind, prefix)
            lacking = tuple(without_value(candidate.variables, source))
        except NotDownloadedError as error:
            pointer = pointer or error
            continue
        except MobileprepError:
            continue  # of another model
        if not lacking:
            return replace(candidate, checkpoint=prefix)
        fewest = min(fewest, lacking, key=len)
    if pointer is not None:
        raise pointer
    return replace(candidate, lacking=fewest)


def _load(
    path: Path, kind: Literal["GraphDef", "MetaGraphDef"], checkpoint: Path | None
) -> LoadedSource:
    if kind == "MetaGraphDef":
        return load_source(meta_graph=path, checkpoint=checkpoint)
    return load_source(graph=path, checkpoint=checkpoint)


def _needed_part(source: LoadedSource) -> Graph:
    """The part of a graph that its likely outputs need; all of it where none is seen."""
    found = find_interface(source, chosen_signature(source, ""))
    roots = [parse_ref(t.name).node for t in found.outputs]
    # Of a training graph the likeliest output alone is a result.
    roots = roots[:1] if is_of_training(source.graph) else roots
    return extract(source.graph, roots) if roots else source.graph
