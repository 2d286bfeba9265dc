"""Header that makes TensorFlow compile only the kernels that graphs need."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from mobileprep.core.arguments import FilePath, Warn, as_warning
from mobileprep.errors import InvalidGraphError, UsageError, nearest_hint
from mobileprep.graph.files import check_holds_nodes, read_shipped_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.opdefs.definitions import DEFAULT_RELEASE, RELEASES
from mobileprep.targets.op_lists import DEFAULT_OPS, OpKernel, parse_default_ops
from mobileprep.targets.selective_registration import (
    ops_and_kernels,
)
from mobileprep.targets.selective_registration import (
    registration_header as header_of,
)

ALL: Final = "all"
"""Value of the default ops that registers everything."""

USUAL: Final = ",".join(f"{pair.op}:{pair.kernel}" for pair in DEFAULT_OPS)
"""Default ops that every session needs."""


def registration_header(
    graphs: Graph | FilePath | Iterable[Graph | FilePath],
    *,
    tensorflow: str = DEFAULT_RELEASE,
    default_ops: str = USUAL,
    warn: Warn | None = None,
) -> str:
    """Generate the ``ops_to_register.h`` of an app.

    Args:
        graphs: all frozen graphs that the app loads, or paths of their files, which may be
            memory-mapped.
        tensorflow: TensorFlow release of the app, 1.15 or 2.21.
        default_ops: ops to register in any case, ``"Op:KernelClass,..."``, or ``"all"`` for
            everything; by default those that every session needs.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Raises:
        UsageError: the release does not exist, ``graphs`` is empty, or ``default_ops`` is
            malformed.
        CorruptFileError: a file is missing, damaged, or not a graph.
        InvalidGraphError: a graph is empty or malformed.
        UnsupportedError: the release has no kernel for an op of a graph.
    """
    release = release_of(tensorflow)
    listed = [graphs] if isinstance(graphs, Graph | str | os.PathLike) else list(graphs)
    if not listed:
        message = "no graphs are named"
        raise UsageError(message, "give the frozen graphs of the app")
    names = [f"graph {i}" if isinstance(g, Graph) else str(g) for i, g in enumerate(listed, 1)]
    loaded = [g if isinstance(g, Graph) else read_shipped_graph(Path(g)) for g in listed]
    return graphs_header(loaded, names, release, default_pairs(default_ops), warn or as_warning)


def graphs_header(
    graphs: Sequence[Graph],
    names: Sequence[str],
    release: str,
    defaults: tuple[OpKernel, ...] | None,
    warn: Warn,
) -> str:
    """Generate the header for graphs."""
    for name, graph in zip(names, graphs, strict=True):
        check_holds_nodes(graph, name)
    if defaults is None:
        return pairs_header((), names, release, None)
    ops = ops_and_kernels(graphs, release, default_ops=defaults, files=names, warn=warn)
    return pairs_header(ops, names, release, ())


def pairs_header(
    listed: Sequence[OpKernel],
    names: Iterable[str],
    release: str,
    defaults: tuple[OpKernel, ...] | None,
) -> str:
    """Generate the header for pairs of op and kernel class."""
    if defaults is None:
        return header_of((), release, everything=True)
    ops = (*defaults, *listed)
    if not ops:
        message = f"there is nothing to register in {', '.join(names)}"
        raise InvalidGraphError(message, "name the frozen graphs of the app")
    return header_of(ops, release)


def default_pairs(text: str) -> tuple[OpKernel, ...] | None:
    """Parse ``Op:Kernel,Op:Kernel``. Return None for "all", which registers everything."""
    return None if text == ALL else parse_default_ops(text)


def release_of(text: str) -> str:
    """Return the supported release for a version such as ``2.21.0``.

    Raises:
        UsageError: the release is not supported.
    """
    release = ".".join(text.split(".")[:2])
    if release not in RELEASES:
        message = f"no table of TensorFlow {text}"
        hint = nearest_hint(text, RELEASES) or f"choose one of {', '.join(RELEASES)}"
        raise UsageError(message, hint)
    return release
