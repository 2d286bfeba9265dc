"""Which operators of a .tflite file LiteRT's fast path leaves, by the interpreter's own word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mobileprep.errors import UnsupportedError
from mobileprep.frozen import dataclass
from mobileprep.runtime.engines.libraries import import_library

_INSTALL: Final = "pip install 'mobileprep[litert]'"
_DELEGATE: Final = "DELEGATE"


@dataclass(frozen=True)
class FastPath:
    """What XNNPACK, which LiteRT takes by itself on CPUs, runs of the main subgraph.

    Args:
        operators: how many there are.
        left: how many of each kind LiteRT's own kernels run, the most frequent first.
    """

    operators: int
    left: Mapping[str, int]


def fast_path(path: Path) -> FastPath:
    """Ask the interpreter.

    Args:
        path: a .tflite file, sound in all its offsets.

    Raises:
        UnsupportedError: the interpreter is not installed, or does not take the file.
    """
    library = import_library("ai_edge_litert.interpreter", "ai-edge-litert", _INSTALL)
    try:
        interpreter = library.Interpreter(model_path=str(path))
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        message = f"LiteRT cannot run the file: {' '.join(str(error).split())}"
        raise UnsupportedError(message, "leave --hints out", str(path)) from error
    nodes = interpreter._get_ops_details()
    plain = [node for node in nodes if node["op_name"] != _DELEGATE]
    taken = _taken(plain, [node for node in nodes if node["op_name"] == _DELEGATE])
    left = Counter(node["op_name"] for node in plain if node["index"] not in taken)
    return FastPath(len(plain), dict(left.most_common()))


def _taken(plain: Sequence[Any], delegates: Iterable[Any]) -> frozenset[int]:
    """The operators between what delegates take and what they give."""
    makers = {int(tensor): node for node in plain for tensor in node["outputs"]}
    found: set[int] = set()
    for delegate in delegates:
        given = {int(tensor) for tensor in delegate["inputs"]}
        waiting = [int(tensor) for tensor in delegate["outputs"]]
        while waiting:
            maker = makers.get(waiting.pop())
            if maker is None or maker["index"] in found:
                continue
            found.add(maker["index"])
            waiting += [int(t) for t in maker["inputs"] if int(t) >= 0 and int(t) not in given]
    return frozenset(found)
