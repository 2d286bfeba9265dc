"""The source files of TensorFlow that hold kernels, and those that mobile builds compile."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from mobileprep.errors import UnsupportedError, nearest_hint
from mobileprep.graph.opdefs.definitions import NEWEST, TF115

_DATA: Final = Path(__file__).parent / "data"
_OP_FILES: Final = {TF115: "op_files-1.15.json", NEWEST: "op_files-2.json"}
_NEEDS: Final = {TF115: "file_needs-1.15.json"}
_MOBILE: Final = {TF115: "tf1.15", NEWEST: "tf2"}
_ELSEWHERE: Final = "makefile/tf_op_files.txt, outside core/kernels"

_RUNTIME_OPS: Final = frozenset({"_ArrayToList", "_ListToArray", "_Recv", "_Send", "NoOp"})
"""Ops in whose files are the kernels that the runtime itself cannot do without, as ``_Arg``."""


class KernelFiles(Struct, frozen=True):
    """The source files that some ops need, below ``tensorflow/core/kernels/`` and sorted.

    Args:
        kept: of the files of the default mobile build those to compile: they register an op in
            question, or hold what such a file calls.
        added: files that the default mobile build lacks.
        unplaced: ops of which no file is known.
        needed_by: why each file is there: names of ops, or of files that call it; nothing where
            any file may.
    """

    kept: tuple[str, ...]
    added: tuple[str, ...]
    unplaced: tuple[str, ...]
    needed_by: Mapping[str, tuple[str, ...]]


def kernel_files(ops: Iterable[str], release: str) -> KernelFiles:
    """The source files that ops need in a release.

    An op that the default mobile build has some files of needs no others: what it lacks are
    kernels for types that mobile builds leave out.
    """
    by_op, default = _files_by_op(release), _default_files(release)
    needed = set(ops)
    reasons: dict[str, set[str]] = {}
    for op in needed | _RUNTIME_OPS:
        files = by_op.get(op, frozenset())
        for file in files & default or files:
            reasons.setdefault(file, set()).add(op)
    _add_called(reasons, needed, release)
    return KernelFiles(
        tuple(sorted(reasons.keys() & default)),
        tuple(sorted(reasons.keys() - default)),
        tuple(sorted(needed - by_op.keys())),
        {file: tuple(sorted(names)) for file, names in sorted(reasons.items())},
    )


def _add_called(reasons: dict[str, set[str]], ops: Collection[str], release: str) -> None:
    """Add the files that other files call, and those with unknown callers."""
    needs, default = _needs(release), _default_files(release)
    registering = frozenset().union(*_files_by_op(release).values())
    for file in default - registering - needs.keys():
        reasons.setdefault(file, set())
    grows = True
    while grows:
        before = len(reasons)
        for file, users in needs.items():
            found = {user for user in users if user in reasons or user in ops}
            if found and (file in default or file in reasons):
                reasons.setdefault(file, set()).update(found)
        grows = len(reasons) > before


def op_files(op: str, release: str) -> tuple[frozenset[str], frozenset[str]]:
    """The source files that register an op, and those of them that the default mobile build has.

    Both are empty for an op of which no file is known.
    """
    files = _files_by_op(release).get(op, frozenset())
    return files, files & _default_files(release)


def is_kernel_file(name: str, release: str) -> bool:
    """Whether a release has a file of that name in ``tensorflow/core/kernels/``, if known."""
    return name in _default_files(release) or name in ops_of_files(release)


def ops_of_files(release: str) -> Mapping[str, tuple[str, ...]]:
    """The ops that each source file registers kernels of, sorted."""
    ops: dict[str, list[str]] = {}
    for op, files in sorted(_files_by_op(release).items()):
        for file in files:
            ops.setdefault(file, []).append(op)
    return {file: tuple(names) for file, names in ops.items()}


def makefile_sources(ops: Collection[str] = ()) -> tuple[str, ...]:
    """The files outside ``core/kernels`` that the makefile build of 1.15 lists, in its order.

    Left out are the definitions of contrib's boosted trees, of which no table has an op, and the
    gradients of functions, which ``SymbolicGradient`` alone asks for.
    """
    listed: list[str] = _json("mobile_files.json")[_MOBILE[TF115]][_ELSEWHERE]
    with_gradients = "SymbolicGradient" in ops
    return tuple(
        file
        for file in listed
        if not file.startswith("tensorflow/contrib/")
        and (with_gradients or not file.endswith("_grad.cc"))
    )


@lru_cache(maxsize=len(_OP_FILES))
def _files_by_op(release: str) -> Mapping[str, frozenset[str]]:
    name = _OP_FILES.get(release)
    if name is None:
        message = f"no table of the kernel files of TensorFlow {release}"
        hint = nearest_hint(release, _OP_FILES) or f"one of {', '.join(_OP_FILES)}"
        raise UnsupportedError(message, hint)
    return {op: frozenset(files) for op, files in _json(name)["files"].items()}


@lru_cache(maxsize=len(_MOBILE))
def _needs(release: str) -> Mapping[str, frozenset[str]]:
    """Of files the files that call them, or ops; empty for releases where that is not known."""
    if release not in _NEEDS:
        return {}
    return {file: frozenset(users) for file, users in _json(_NEEDS[release])["needed_by"].items()}


@lru_cache(maxsize=len(_MOBILE))
def _default_files(release: str) -> frozenset[str]:
    groups = _json("mobile_files.json")[_MOBILE[release]]
    return frozenset(
        file for group, files in groups.items() if group != _ELSEWHERE for file in files
    )


def _json(name: str) -> Any:  # noqa: ANN401 - our own data, of known form
    return json.loads((_DATA / name).read_text(encoding="utf-8"))
