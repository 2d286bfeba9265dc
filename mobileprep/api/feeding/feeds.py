"""From ``name=what`` on the command line to the array that a tensor is fed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mobileprep.api.feeding.files import FeedOptions, batch_of, from_file, several_files
from mobileprep.api.feeding.tensors import tensor_info
from mobileprep.api.feeding.values import random_values, text_value, value_in, written
from mobileprep.errors import InvalidGraphError, UsageError
from mobileprep.ir.graph import Graph
from mobileprep.ir.op_sets import PLACEHOLDERS
from mobileprep.ir.refs import edge
from mobileprep.ir.tensor import Array
from mobileprep.runtime.engines.subgraph import known_ref
from mobileprep.runtime.selection import needed_nodes

_RANDOM = "random"
_TEXT = "text:"
_WRITTEN_IN = "@"


def split_feed(text: str) -> tuple[str, str]:
    """``name=what`` in two.

    Raises:
        UsageError: there is no equals sign, or nothing on one of its sides.
    """
    name, equals, what = text.partition("=")
    if not (name and equals and what):
        message = f"--feed takes name=file, name=number or name=random, and got {text!r}"
        raise UsageError(message)
    return name, what


def files_of(what: str) -> list[str] | None:
    """The files that a feed names where it names several; None for one file or any other value.

    Raises:
        UsageError: a pattern fits no file, or a folder holds none that can be fed.
    """
    is_list = what.startswith("[") and what.endswith("]")
    if is_list or what == _RANDOM or what.startswith((f"{_RANDOM}:", _TEXT, _WRITTEN_IN)):
        return None
    return several_files(what)


def read_feed(graph: Graph, name: str, what: str, options: FeedOptions) -> Array:
    """The array that a tensor is fed.

    Args:
        graph: the graph.
        name: the tensor's.
        what: "random", "random:1,224,224,3", a number or several, "true", "false", a list as JSON
            has it, "text:" and a text, "@" and a file that any of these is written in, or a file:
            ``.npy``, ``.npz`` (the array of the tensor's name, or the only one), ``x.npz:name``,
            a picture, ``.wav``. A tensor of text is fed the bytes of the file. Several files, with
            commas between them, as a pattern or a folder, become one batch.
        options: how files become arrays.

    Raises:
        UsageError: the tensor is not in the graph, or the file does not suit it.
        CorruptFileError: the file is missing or damaged.
        UnsupportedError: the file needs a library that is not installed, or has samples of
            another width than 16 bits.
    """
    tensor = tensor_info(graph, name)
    if what == _RANDOM or what.startswith(f"{_RANDOM}:"):
        return random_values(tensor, what[len(_RANDOM) + 1 :], options.seed)
    if what.startswith(_TEXT):
        return text_value(tensor, what.removeprefix(_TEXT))
    if what.startswith(_WRITTEN_IN):
        return value_in(tensor, what.removeprefix(_WRITTEN_IN))
    value = written(tensor, what)
    if value is not None:
        return value
    files = files_of(what)
    if files is None:
        return from_file(tensor, what, options)
    return batch_of(tensor, files, options)


def check_fed(graph: Graph, feeds: Mapping[str, Array], fetches: Sequence[str], where: str) -> None:
    """Make sure that every placeholder that is needed is fed.

    Args:
        graph: the graph.
        feeds: what is fed.
        fetches: what is to be computed.
        where: what the graph is called.

    Raises:
        UsageError: one is not, with its type and shape; or a name is not in the graph.
    """
    wanted = [known_ref(graph, name, "fetch", where) for name in fetches]
    fed = {edge(known_ref(graph, name, "feed", where)) for name in feeds}
    needed = needed_nodes(graph, wanted, fed, where)
    unfed = [tensor_info(graph, n.name) for n in needed if n.op in PLACEHOLDERS]
    if unfed:
        told = ", ".join(f"{t.name!r} ({t})" for t in unfed)
        message = f"nothing is fed to the placeholder{'s' * (len(unfed) > 1)} {told}"
        hint = f"feed it; --feed {unfed[0].name}=FILE takes a number or 'random' for the file too"
        raise UsageError(message, hint, where)


def with_fed_shapes(
    error: InvalidGraphError, graph: Graph, feeds: Mapping[str, Array]
) -> InvalidGraphError:
    """The error of a run, which may come from a feed whose shape the graph does not tell."""
    shapes = [
        f"{name!r} is fed {'a scalar' if not array.ndim else f'the shape {list(array.shape)}'}"
        for name, array in feeds.items()
        if tensor_info(graph, name).shape is None
    ]
    if not shapes:
        return error
    told = f"the graph does not tell what shape it takes: {', '.join(shapes)}"
    return error.at(error.where, hint=f"{error.hint}; {told}")
