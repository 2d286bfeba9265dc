"""What keeps a build of TensorFlow from loading and running a graph, before it fails there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.opdefs.definitions import RELEASES, TF115, op_def
from mobileprep.opdefs.mobile_types import type_left_out
from mobileprep.opdefs.older_ops import OLDER_OPS
from mobileprep.opdefs.release_gaps import GRAPH_VERSIONS, ReleaseGap, release_gaps
from mobileprep.opdefs.source_files import op_files
from mobileprep.ops.nn.channel_groups import has_channel_groups
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.packaging.mends import reason_left_out, removal
from mobileprep.packaging.targets import platform_named

Cause = Literal[
    "newer op",
    "newer attribute",
    "newer value",
    "newer graph",
    "removed op",
    "no kernel",
    "training",
    "image library",
    "not compiled",
    "type not compiled",
]

# What a platform's default build leaves out: sources, and types. Others build everything.
_FEWER_SOURCES: Final = frozenset({"android", "ios", "raspberry-pi"})
_FEWER_TYPES: Final = frozenset({"android", "ios"})

_DOWNGRADE: Final = "the transform downgrade"
_SELECTIVE: Final = (
    "build with ops_to_register.h and the fragments that go with it, which compile the types in use"
)
_GROUPS: Final = "groups of channels"
_LAYOUTS: Final = {
    "data_format": "export the model with the channels last: CPU kernels have no other layout",
    "dilations": "put the layer between SpaceToBatchND and BatchToSpaceND instead of dilating it",
    "strides": "use the same stride for height and width",
}
"""Mends for kernels that refuse an attribute, by its name."""
_CAUSES: Final[dict[str, Cause]] = {
    "op": "newer op",
    "default attribute": "newer attribute",
    "attribute": "newer attribute",
    "value": "newer value",
    "removed": "removed op",
    "kernel": "no kernel",
}


@dataclass(frozen=True, slots=True, order=True)
class TargetGap:
    """One thing that is missing.

    Args:
        op: whose; empty for the graph as a whole.
        cause: why it is missing.
        what: the attribute, the value, the types or the version.
        message: a sentence.
        mend: what to do.
        files: sources below ``tensorflow/core/kernels/`` that would have to be added.
        node: the first one that it concerns.
        count: how many it concerns.
    """

    op: str
    cause: Cause
    what: str
    message: str
    mend: str
    files: tuple[str, ...] = ()
    node: str = ""
    count: int = 1


def target_gaps(
    graph: Graph, release: str, platform: str, *, selective: bool = False
) -> tuple[TargetGap, ...]:
    """What a build of TensorFlow lacks for a graph, sorted by op.

    Args:
        graph: as the app loads it.
        release: "1.15" or "2.21".
        platform: a name of ``targets.PLATFORMS``.
        selective: whether the app builds with the registration header and its fragments, which
            compile what the graph needs: what those mend is not told then.

    Raises:
        UnsupportedError: an unknown release or platform.
    """
    name = platform_named(platform).name
    survey = _Survey(release, name, graph.versions.producer, selective=selective)
    bodies = [f.nodes for f in graph.library.functions.values()]
    for nodes in (graph.nodes, *bodies):
        for node in nodes:
            if node.op not in graph.library.functions:
                survey.add(node)
    if release == TF115:
        survey.add_channel_groups(graph)
    return (*_newer_graph(graph, release), *survey.gaps())


def _newer_graph(graph: Graph, release: str) -> Iterator[TargetGap]:
    least, newest = graph.versions.min_consumer, GRAPH_VERSIONS[release]
    if least > newest or newest in graph.versions.bad_consumers:
        asked = f"min_consumer={least}" if least > newest else f"bad_consumers has {newest}"
        message = f"TensorFlow {release} is of graph version {newest}, and the graph refuses it"
        mend = f"{_DOWNGRADE} lowers min_consumer where nothing newer is left"
        yield TargetGap("", "newer graph", asked, message, mend)


@dataclass(frozen=True, slots=True)
class _Lack:
    """What is missing, without the places."""

    op: str
    cause: Cause
    what: str = ""
    is_default: bool = False


class _Survey:
    """Collects gaps, looking each kind of node up once."""

    def __init__(self, release: str, platform: str, producer: int, *, selective: bool) -> None:
        self._release = release
        self._platform = platform
        self._producer = producer
        self._selective = selective
        self._seen: dict[object, tuple[_Lack, ...]] = {}
        self._places: dict[_Lack, list[str]] = {}

    def add(self, node: Node) -> None:
        kept = [(k, v.kind, v.value) for k, v in node.attrs.items() if v.kind != "tensor"]
        key = repr((node.op, sorted(kept, key=lambda item: item[0])))
        if key not in self._seen:
            self._seen[key] = tuple(self._lacks(node))
        for lack in self._seen[key]:
            self._places.setdefault(lack, []).append(node.name)

    def add_channel_groups(self, graph: Graph) -> None:
        """Convolutions that 1.15's kernel for the CPU refuses when it runs; only shapes tell."""
        convolutions = [node for node in graph if node.op == "Conv2D"]
        shapes = infer_shapes(graph) if convolutions else {}
        for node in convolutions:
            if has_channel_groups(node, shapes):
                lack = _Lack(node.op, "no kernel", _GROUPS)
                self._places.setdefault(lack, []).append(node.name)

    def gaps(self) -> Iterator[TargetGap]:
        ordered = sorted(self._places.items(), key=lambda item: (item[0].op, item[0].cause))
        for lack, names in ordered:
            files = self._files(lack)
            message, mend = self._message(lack), self._mend(lack, files)
            yield TargetGap(
                lack.op, lack.cause, lack.what, message, mend, files, names[0], len(names)
            )

    def _lacks(self, node: Node) -> Iterator[_Lack]:
        found = list(release_gaps(node, self._release, self._producer))
        for gap in found:
            yield self._of_release(node.op, gap)
        if any(gap.kind in ("op", "kernel") for gap in found):
            return
        files, compiled = op_files(node.op, self._release)
        if self._platform in _FEWER_SOURCES and files and not compiled:
            cause = reason_left_out(node.op)
            # Fragments add sources, and no library of pictures.
            if cause == "image library" or not self._selective:
                yield _Lack(node.op, cause)
        elif self._platform in _FEWER_TYPES and not self._selective:
            left_out = type_left_out(node, self._release)
            if left_out:
                yield _Lack(node.op, "type not compiled", left_out)

    def _of_release(self, op: str, gap: ReleaseGap) -> _Lack:
        return _Lack(op, _CAUSES[gap.kind], gap.what, gap.kind == "default attribute")

    def _files(self, lack: _Lack) -> tuple[str, ...]:
        if lack.cause not in ("training", "image library", "not compiled"):
            return ()
        return tuple(sorted(op_files(lack.op, self._release)[0]))

    def _message(self, lack: _Lack) -> str:
        here = f"TensorFlow {self._release}"
        default = f"the default build of {here} for {self._platform}"
        sentences: dict[Cause, str] = {
            "newer op": f"{here} has no op {lack.op}",
            "newer attribute": f"{here} has no attribute {lack.what} of {lack.op}",
            "newer value": f"{here} takes no {lack.what} of {lack.op}",
            "removed op": f"{here} refuses {lack.op} in graphs from {lack.what[6:]} on",
            "no kernel": f"{here} has no CPU kernel of {lack.op} for {lack.what}",
            "training": f"{default} has no {lack.op}, which is for training or reading data",
            "image library": f"{default} has no {lack.op}, which needs libjpeg, libpng or giflib",
            "not compiled": f"{default} does not compile {lack.op}",
            "type not compiled": f"{default} compiles no kernel of {lack.op} for {lack.what}",
        }
        return sentences[lack.cause]

    def _mend(self, lack: _Lack, files: tuple[str, ...]) -> str:
        if lack.cause == "newer op":
            return self._newer_op(lack.op)
        if lack.cause == "newer attribute":
            return (
                f"{_DOWNGRADE} drops what is at its default"
                if lack.is_default
                else self._newer_release()
            )
        if lack.cause == "type not compiled":
            return _SELECTIVE
        if lack.what == _GROUPS:
            return self._newer_release()
        if lack.cause == "no kernel":
            types = "cast to types that the release computes with, or choose another release"
            return _LAYOUTS.get(lack.what.split("=")[0], types)
        if lack.cause == "newer value":
            return self._newer_release()
        if lack.cause == "removed op":
            return f"fold_old_batch_norms, or a graph version below {lack.what.split()[-1]}"
        added = f"add {', '.join(files)} to the build"
        removed = removal(lack.op)
        return f"{removed}; or {added}" if removed else added

    def _newer_op(self, op: str) -> str:
        if op in OLDER_OPS:
            return f"{_DOWNGRADE} makes {OLDER_OPS[op]} of it where that does the same"
        return self._newer_release(op)

    def _newer_release(self, op: str = "") -> str:
        newer = [r for r in RELEASES if r != self._release and (not op or op_def(op, r))]
        if newer:
            return f"build the app with TensorFlow {newer[-1]}, or change the model"
        return "an op of your own has to be registered by the app"
