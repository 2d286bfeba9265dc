"""Whether the TensorFlow library of an app fits a device, and a model."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from mobileprep.formats.shared_library import SharedLibrary, read_library, texts_in
from mobileprep.frozen import dataclass
from mobileprep.ir.files import read_shipped_graph

PAGE: Final = 1 << 14
"""Bytes of a page on devices with Android 15 and newer that have large ones."""
_WIDE: Final = 64
# Every library of TensorFlow has some of these ops, and the classes of their kernels.
_OPS: Final = frozenset({"Const", "Identity", "NoOp", "Placeholder", "_Recv", "_Send"})
_KERNELS: Final = frozenset({"ConstantOp", "IdentityOp", "PlaceholderOp"})


@dataclass(frozen=True)
class LibraryFacts:
    """What is in a library, and what is wrong with it.

    Args:
        file: the library.
        machine: the processor that it is for, as ELF names it.
        abi: Android's name for that; empty where Android has none.
        alignment: the least alignment of its segments in bytes.
        missing_ops: the ops of the model whose names are nowhere in the library, sorted.
        problems: what keeps it from being loaded, or the model from running, each with its mend.
    """

    file: str
    machine: str
    abi: str
    alignment: int
    missing_ops: tuple[str, ...]
    problems: tuple[str, ...]


def library_facts(
    library: str | os.PathLike[str], graph: str | os.PathLike[str] | None = None
) -> LibraryFacts:
    """Look at a library, and whether it can have the ops of a graph.

    Args:
        library: an ELF file, such as ``libtensorflow_inference.so``.
        graph: a GraphDef file; None where it is the library alone that counts.

    Raises:
        CorruptFileError: a file cannot be read, or is damaged.
        InvalidGraphError: the graph breaks a rule.
        UnsupportedError: the package pyelftools is not installed.
    """
    path = Path(library)
    found = read_library(path)
    ops: frozenset[str] = frozenset()
    if graph is not None:
        read = read_shipped_graph(Path(graph))
        bodies = (node for function in read.library.functions.values() for node in function.nodes)
        ops = frozenset(n.op for n in (*read, *bodies) if n.op not in read.library.functions)
    known = texts_in(path, found, {*ops, *_OPS, *_KERNELS})
    missing = tuple(sorted(ops - known))
    alignment = min(found.alignments)
    problems = (*_absence(known), *_problems(found, alignment, missing))
    return LibraryFacts(str(path), found.machine, found.abi, alignment, missing, problems)


def _absence(known: Collection[str]) -> Iterator[str]:
    """What to do about a library in which TensorFlow registers no ops or kernels."""
    if not _OPS & set(known):
        yield (
            "it holds no ops of TensorFlow: name the .so file that TensorFlow is linked into, and "
            "strip no strings from it"
        )
    elif not _KERNELS & set(known):
        yield (
            "it holds no kernels, only the names of ops: link TensorFlow's static libraries whole "
            "(-Wl,--whole-archive), and compile the kernels that ops_to_register.h lists"
        )


def _problems(library: SharedLibrary, alignment: int, missing: tuple[str, ...]) -> Iterator[str]:
    if library.abi and library.bits == _WIDE and alignment < PAGE:
        yield (
            f"a segment is aligned to {alignment:,} bytes, and devices with pages of {PAGE:,} "
            f"cannot load it: link with -Wl,-z,max-page-size={PAGE}"
        )
    if missing:
        yield (
            f"{len(missing)} ops of the model are not registered: {', '.join(missing)}; build it "
            "with the model's ops_to_register.h"
        )
