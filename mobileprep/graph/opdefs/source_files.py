"""TensorFlow source files with kernels, and the files that mobile builds compile."""

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
"""Ops whose files contain kernels that the runtime itself needs, such as ``_Arg``."""


class KernelFiles(Struct, frozen=True):
    """The source files that ops need, relative to ``tensorflow/core/kernels/`` and sorted.

    Args:
        kept: required files of the default mobile build: they register an op, or other required
            files call them.
        added: required files that are not in the default mobile build.
        unplaced: ops whose files are unknown.
        needed_by: reasons for each file: names of ops, or of files that call it; empty if the
            callers are unknown.
    """

    kept: tuple[str, ...]
    added: tuple[str, ...]
    unplaced: tuple[str, ...]
    needed_by: Mapping[str, tuple[str, ...]]


def kernel_files(ops: Iterable[str], release: str) -> KernelFiles:
    """Return the source files that ops need in a release.

    If some files of an op are in the default mobile build, its other files are not needed: they
    only contain kernels for types that mobile builds do not support.
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
    """Add files that other files call, and files with unknown callers."""
    needs, default = _needs(release), _default_files(release)
    registering = frozenset().union(*_files_by_op(release).values())
    for file in default - registering - needs.keys():
        reasons.setdefault(file, set())
    grows = True
    while grows:
        before = len(reasons)
        for file, users in needs.items():
            callers = {user for user in users if user in reasons or user in ops}
            if callers and (file in default or file in reasons):
                reasons.setdefault(file, set()).update(callers)
        grows = len(reasons) > before


def op_files(op: str, release: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the source files that register an op, and those in the default mobile build.

    Both are empty if the files of an op are unknown.
    """
    files = _files_by_op(release).get(op, frozenset())
    return files, files & _default_files(release)


def default_list(file: str, release: str) -> str:
    """Return the list of the default mobile build that has a kernel file; empty if none has it.

    For 1.15, that is the makefile's list, and for 2.21 a filegroup in Bazel's ``BUILD`` file.
    """
    groups = _json("mobile_files.json")[_MOBILE[release]]
    return next((g for g, files in groups.items() if g != _ELSEWHERE and file in files), "")


def is_kernel_file(name: str, release: str) -> bool:
    """Return whether a release is known to have that file in ``tensorflow/core/kernels/``."""
    return name in _default_files(release) or name in ops_of_files(release)


def ops_of_files(release: str) -> Mapping[str, tuple[str, ...]]:
    """Return the ops whose kernels each source file registers, sorted."""
    ops: dict[str, list[str]] = {}
    for op, files in sorted(_files_by_op(release).items()):
        for file in files:
            ops.setdefault(file, []).append(op)
    return {file: tuple(names) for file, names in ops.items()}


def makefile_sources(ops: Collection[str] = ()) -> tuple[str, ...]:
    """Return the files outside ``core/kernels`` of the makefile build of 1.15, in its order.

    Definitions of contrib's boosted trees, whose ops are not in any table, are not included.
    Gradients of functions are only included if ``SymbolicGradient`` needs them.
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
    """Return the callers (files or ops) of files; empty for releases where they are unknown."""
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
