"""The op definitions of TensorFlow releases, read from the package's data when asked for."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final

from mobileprep.errors import UnsupportedError, nearest_hint
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.ir.opdef import OpDef
from mobileprep.ir.serde_opdef import opdef_from_proto

TF115: Final = "1.15"
NEWEST: Final = "2.21"
RELEASES: Final = (TF115, NEWEST)
DEFAULT_RELEASE: Final = TF115
"""The release of every recipe, verb, and function that names none."""

_DATA = Path(__file__).parent / "data"


def op_def(name: str, release: str = NEWEST) -> OpDef | None:
    """The definition of an op in a release, or None where that release has no such op.

    Raises:
        UnsupportedError: no table of that release is shipped.
    """
    proto = _protos(release).get(name)
    return None if proto is None else _converted(name, release)


def any_op_def(name: str) -> OpDef | None:
    """The newest release's definition of an op, or else the oldest's, or None."""
    return op_def(name) or op_def(name, TF115)


def op_names(release: str) -> list[str]:
    """All ops of a release, sorted."""
    return sorted(_protos(release))


def slip_in(op: str) -> str:
    """What to tell of the name of an op that no release has; empty where one has it."""
    names = {*op_names(NEWEST), *op_names(TF115)}
    if op in names:
        return ""
    near = nearest_hint(op, names)
    return f"no TensorFlow has an op {op!r}" + (f"; {near}" if near else "")


@lru_cache(maxsize=4096)
def _converted(name: str, release: str) -> OpDef:
    return opdef_from_proto(_protos(release)[name], f"op definition {name}")


@lru_cache(maxsize=len(RELEASES))
def _protos(release: str) -> dict[str, pb.OpDef]:
    if release not in RELEASES:
        message = f"there are no op definitions of TensorFlow {release}"
        hint = nearest_hint(release, RELEASES) or f"one of {', '.join(RELEASES)}"
        raise UnsupportedError(message, hint)
    listed = pb.OpList()
    listed.ParseFromString((_DATA / f"op_defs-{release}.pb").read_bytes())
    return {op.name: op for op in listed.op}
