"""Find the ops and kernels that a build of TensorFlow lacks for a graph."""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Final, Literal, TypedDict

from msgspec import Struct

from mobileprep.errors import UnsupportedError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import OLDER_OPS, RELEASES, TF115, op_def
from mobileprep.graph.opdefs.kernel_classes import (
    kernel_class,
    node_types,
    op_files,
    registered_types,
)
from mobileprep.graph.opdefs.release_gaps import GRAPH_VERSIONS, release_gaps
from mobileprep.ops.nn.conv import has_channel_groups
from mobileprep.ops.shape_inference import infer_shapes
from mobileprep.targets.memmapped import reason_left_out, removal
from mobileprep.targets.op_lists import RegisteredOps
from mobileprep.targets.targets import platform_named
from mobileprep.transforms.base import Context, make_transform

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
    "not registered",
]


# Platforms whose default build omits sources or dtypes. Others build everything.
FEWER_SOURCES: Final = frozenset({"android", "ios", "raspberry-pi"})


FEWER_TYPES: Final = frozenset({"android", "ios"})


_DOWNGRADE: Final = "the transform `downgrade`"


_SELECTIVE: Final = (
    "build with `ops_to_register.h` and the build files next to it, which compile the types in use"
)


_REGISTER: Final = "write `ops_to_register.h` again from this graph, and build TensorFlow with it"


_GROUPS: Final = "groups of channels"


_LAYOUTS: Final = {
    "data_format": "export the model with the channels last: CPU kernels have no other layout",
    "dilations": "put the layer between SpaceToBatchND and BatchToSpaceND instead of dilating it",
    "strides": "use the same stride for height and width",
}
"""Fixes for kernels that refuse an attribute, by its name."""


_CAUSES: Final[dict[str, Cause]] = {
    "op": "newer op",
    "default attribute": "newer attribute",
    "attribute": "newer attribute",
    "value": "newer value",
    "removed": "removed op",
    "kernel": "no kernel",
}


class TargetGap(Struct, frozen=True, order=True):
    """An unsupported op or feature in a build of TensorFlow.

    Args:
        op: the op; empty for the graph as a whole.
        cause: why it is missing.
        what: the attribute, value, types, kernel class, or version.
        message: a sentence without a period.
        mend: how to fix it.
        files: sources below ``tensorflow/core/kernels/`` to add.
        node: the first affected node.
        count: number of affected nodes.
        function: the library function that contains ``node``; empty for the graph itself.
    """

    op: str
    cause: Cause
    what: str
    message: str
    mend: str
    files: tuple[str, ...] = ()
    node: str = ""
    count: int = 1
    function: str = ""

    @property
    def sentence(self) -> str:
        """The message with the first affected node and the number of further ones."""
        if not self.node:
            return self.message
        more = f" and {self.count - 1} more" if self.count > 1 else ""
        inside = f" of function `{self.function}`" if self.function else ""
        return f"{self.message} (node `{self.node}`{inside}{more})"


def target_gaps(
    graph: Graph,
    release: str,
    platform: str,
    *,
    selective: bool = False,
    custom_ops: Container[str] = (),
    header: RegisteredOps | None = None,
) -> tuple[TargetGap, ...]:
    """Return the gaps of a TensorFlow build for a graph, sorted by op.

    Args:
        release: "1.15" or "2.21".
        selective: the app builds with the registration header and its build files, which compile
            the ops and types that the graph needs.
        header: contents of that header. Ops that it names and the release does not have count as
            the app's own.
    """
    name = platform_named(platform).name
    survey = _Survey(release, name, graph.versions.producer, selective, custom_ops, header)
    survey.add_all(graph, "")
    for function in graph.library.functions.values():
        survey.add_all(Graph(function.nodes, graph.library), function.name)
    if release == TF115:
        survey.add_channel_groups(graph)
    return (*_newer_graph(graph, release), *survey.gaps())


def _newer_graph(graph: Graph, release: str) -> Iterator[TargetGap]:
    least, newest = graph.versions.min_consumer, GRAPH_VERSIONS[release]
    if least > newest or newest in graph.versions.bad_consumers:
        field = f"min_consumer={least}" if least > newest else f"bad_consumers={newest}"
        message = f"TensorFlow {release} (GraphDef version {newest}) rejects a graph with `{field}`"
        hint = f"{_DOWNGRADE} lowers `min_consumer` if the graph uses nothing newer"
        yield TargetGap("", "newer graph", field, message, hint)


class _Lack(Struct, frozen=True):
    """A missing feature, without its locations."""

    op: str
    cause: Cause
    what: str = ""
    is_default: bool = False


class _Survey:
    """Collect gaps, looking up each kind of node once."""

    def __init__(
        self,
        release: str,
        platform: str,
        producer: int,
        selective: bool,
        custom_ops: Container[str],
        header: RegisteredOps | None,
    ) -> None:
        self._release = release
        self._platform = platform
        self._producer = producer
        self._selective = selective
        self._custom_ops = custom_ops
        self._header = header
        self._seen: dict[object, tuple[_Lack, ...]] = {}
        self._places: dict[_Lack, list[tuple[str, str]]] = {}

    def add_all(self, graph: Graph, function: str) -> None:
        """Add the nodes of a graph, or of a function body."""
        for node in graph:
            if node.op not in graph.library.functions and node.op not in self._custom_ops:
                self._add(node, function)

    def _add(self, node: Node, function: str) -> None:
        attributes = [(k, v.kind, v.value) for k, v in node.attrs.items() if v.kind != "tensor"]
        key = repr((node.op, sorted(attributes, key=lambda item: item[0])))
        if key not in self._seen:
            self._seen[key] = tuple(self._lacks(node))
        for lack in self._seen[key]:
            self._places.setdefault(lack, []).append((node.name, function))

    def add_channel_groups(self, graph: Graph) -> None:
        """Add the grouped convolutions that the CPU kernel of 1.15 rejects when it runs."""
        convolutions = [node for node in graph if node.op == "Conv2D"]
        shapes = infer_shapes(graph) if convolutions else {}
        for node in convolutions:
            if has_channel_groups(node, shapes):
                lack = _Lack(node.op, "no kernel", _GROUPS)
                self._places.setdefault(lack, []).append((node.name, ""))

    def gaps(self) -> Iterator[TargetGap]:
        ordered = sorted(self._places.items(), key=lambda item: (item[0].op, item[0].cause))
        for lack, places in ordered:
            files = self._files(lack)
            gap = partial(TargetGap, lack.op, lack.cause, lack.what, self._message(lack))
            name, function = places[0]
            yield gap(self._suggestion(lack, files), files, name, len(places), function)

    def _lacks(self, node: Node) -> Iterator[_Lack]:
        if self._header is not None and not self._header.everything:
            if node.op in self._header.ops and op_def(node.op, self._release) is None:
                return
            yield from self._unregistered(node, self._header)
        gaps = list(release_gaps(node, self._release, self._producer))
        for gap in gaps:
            is_default = gap.kind == "default attribute"
            yield _Lack(node.op, _CAUSES[gap.kind], gap.what, is_default)
        if any(gap.kind in ("op", "kernel") for gap in gaps):
            return
        files, compiled = op_files(node.op, self._release)
        if self._platform in FEWER_SOURCES and files and not compiled:
            cause = reason_left_out(node.op)
            # The build files add sources, but not an image library.
            if cause == "image library" or not self._selective:
                yield _Lack(node.op, cause)
        elif self._platform in FEWER_TYPES and not self._selective:
            left_out = type_left_out(node, self._release)
            if left_out:
                yield _Lack(node.op, "type not compiled", left_out)

    def _unregistered(self, node: Node, header: RegisteredOps) -> Iterator[_Lack]:
        kernel = kernel_class(node, self._release)
        if kernel is not None and node.op not in header.ops:
            yield _Lack(node.op, "not registered")
        elif kernel is not None and kernel not in header.kernels:
            yield _Lack(node.op, "not registered", kernel)

    def _files(self, lack: _Lack) -> tuple[str, ...]:
        if lack.cause not in ("training", "image library", "not compiled"):
            return ()
        return tuple(sorted(op_files(lack.op, self._release)[0]))

    def _message(self, lack: _Lack) -> str:
        op, what = lack.op, lack.what
        name = f"TensorFlow {self._release}"
        default = f"the default build of {name} for {self._platform}"
        kernel = f"kernel `{what}` of `{op}`" if what else f"op `{op}`"
        sentences: dict[Cause, str] = {
            "newer op": f"{name} does not have the op `{op}`",
            "newer attribute": f"{name} does not know the attribute `{what}` of `{op}`",
            "newer value": f"{name} does not accept `{what}` for `{op}`",
            "removed op": f"{name} rejects `{op}` in graphs of {what[6:]} and newer",
            "no kernel": f"{name} has no CPU kernel of `{op}` for {what}",
            "training": f"{default} does not compile `{op}`, an op for training or reading data",
            "image library": f"{default} does not link the image library that `{op}` needs",
            "not compiled": f"{default} does not compile `{op}`",
            "type not compiled": f"{default} compiles no kernel of `{op}` for {what}",
            "not registered": f"`ops_to_register.h` does not register the {kernel}",
        }
        return sentences[lack.cause]

    def _suggestion(self, lack: _Lack, files: tuple[str, ...]) -> str:
        if lack.cause == "newer op":
            return self._newer_op(lack.op)
        if lack.cause == "newer attribute":
            return (
                f"{_DOWNGRADE} removes attributes that have their default value"
                if lack.is_default
                else self._newer_release()
            )
        if lack.cause == "type not compiled":
            return _SELECTIVE
        if lack.cause == "not registered":
            return _REGISTER
        if lack.what == _GROUPS or lack.cause == "newer value":
            return self._newer_release()
        if lack.cause == "no kernel":
            types = "cast to a type that the release has a kernel for, or choose another release"
            return _LAYOUTS.get(lack.what.split("=")[0], types)
        if lack.cause == "removed op":
            return f"`fold_old_batch_norms`, or a graph version below {lack.what.split()[-1]}"
        added = f"add {', '.join(files)} to the build"
        removed = removal(lack.op)
        return f"{removed}; or {added}" if removed else added

    def _newer_op(self, op: str) -> str:
        if op in OLDER_OPS:
            return f"{_DOWNGRADE} replaces it with `{OLDER_OPS[op]}` where that is equivalent"
        return self._newer_release(op)

    def _newer_release(self, op: str = "") -> str:
        newer = [r for r in RELEASES if r != self._release and (not op or op_def(op, r))]
        if newer:
            return f"build the app with TensorFlow {newer[-1]}, or change the model"
        return "register the op in the app, and declare it under `ops:` in the recipe"


VERSIONS: Final = "versions"
"""Name of gaps of the graph as a whole in ``allow``, after the field of a GraphDef."""


_MAX_LISTED: Final = 20


_LOADS: Final[frozenset[Cause]] = frozenset(
    {"newer op", "newer attribute", "newer value", "newer graph", "removed op"}
)


class AppBuild(Struct, frozen=True):
    """The TensorFlow build of an app, with the registration header.

    Args:
        releases: releases of the recipe's ``registration``.
        platform: a name of ``targets.PLATFORMS``.
        allow: ops whose gaps are accepted, and ``versions`` for the graph.
        custom_ops: ops that the app registers itself.
    """

    releases: tuple[str, ...]
    platform: str
    allow: Collection[str] = ()
    custom_ops: Collection[str] = ()

    def gaps(self, graph: Graph, release: str) -> Iterator[TargetGap]:
        """Yield the gaps of a release for a graph, except the allowed ones."""
        for gap in self._all_gaps(graph, release):
            if (gap.op or VERSIONS) not in self.allow:
                yield gap

    def accepted(self, graph: Graph) -> Iterator[str]:
        """Yield a warning for each gap that ``allow`` accepts."""
        for release in self.releases:
            for gap in self._all_gaps(graph, release):
                name = gap.op or VERSIONS
                if name in self.allow:
                    verb = "load" if gap.cause in _LOADS else "run"
                    yield (
                        f"{gap.sentence}; `allow` lists `{name}`, so the model ships, but "
                        f"TensorFlow {release} cannot {verb} it unless the app adds the support"
                    )

    def _all_gaps(self, graph: Graph, release: str) -> tuple[TargetGap, ...]:
        custom = self.custom_ops
        return target_gaps(graph, release, self.platform, selective=True, custom_ops=custom)


def ops_of(graph: Graph) -> frozenset[str]:
    """Return the ops of a graph and of the functions in its library."""
    bodies = (function.nodes for function in graph.library.functions.values())
    return frozenset(node.op for nodes in (graph.nodes, *bodies) for node in nodes)


def check_loads(graph: Graph, build: AppBuild) -> None:
    """Check that every release of a build can load and run a graph.

    Raises:
        UnsupportedError: a release cannot.
    """
    refused = {r: gaps for r in build.releases if (gaps := tuple(build.gaps(graph, r)))}
    if refused:
        raise UnsupportedError(_message(refused.values()), _hint(graph, build, refused))


def _message(refused: Iterable[tuple[TargetGap, ...]]) -> str:
    sentences = [gap.sentence for gaps in refused for gap in gaps]
    lines = sentences[:_MAX_LISTED]
    if len(sentences) > _MAX_LISTED:
        lines.append(f"and {len(sentences) - _MAX_LISTED} more problems of this kind")
    return "\n".join(lines)


def _hint(graph: Graph, build: AppBuild, refused: dict[str, tuple[TargetGap, ...]]) -> str:
    ops = sorted({gap.op or VERSIONS for gaps in refused.values() for gap in gaps})
    allow = ", ".join(sorted({*build.allow, *ops}))
    listed = ", ".join(f'"{release}"' for release in build.releases)
    anyway = (
        f"to ship it anyway, write `registration: {{tensorflow: [{listed}], allow: [{allow}]}}`"
    )
    return "; ".join([*dict.fromkeys(_ways(graph, build, refused)), anyway])


def _ways(
    graph: Graph, build: AppBuild, refused: dict[str, tuple[TargetGap, ...]]
) -> Iterator[str]:
    """Yield ways to make the graph load, after trying each of them."""
    remaining = [gap for gaps in refused.values() for gap in gaps]
    if TF115 in refused:
        older = make_transform("downgrade", {}).apply(graph, Context()).graph
        after = tuple(build.gaps(older, TF115))
        if len(after) < len(refused[TF115]):
            others = [gap for r, gaps in refused.items() if r != TF115 for gap in gaps]
            remaining = [*after, *others]
            rest = f", which fixes all but {len(remaining)} of them" if remaining else ""
            yield f"add `- downgrade` to the end of `transforms:`{rest}"
    if not remaining:
        return
    loading = [r for r in RELEASES if r not in refused and not any(build.gaps(graph, r))]
    if loading:
        newest = loading[-1]
        line = f'registration: {{tensorflow: "{newest}"}}'
        yield f"build the app with TensorFlow {newest}: `{line}`"
        return
    unknown = next(
        (gap.op for gap in remaining if gap.op and not any(map(partial(op_def, gap.op), RELEASES))),
        "",
    )
    if unknown:
        declared = f'ops: {{{unknown}: {{kernel: "CLASS", source: FILE.cc}}}}'
        yield f"if the app registers `{unknown}` itself, declare it: `{declared}`"
    yield from (gap.mend for gap in remaining if gap.op != unknown)


_FILE: Final = Path(__file__).parents[1] / "graph" / "opdefs" / "data" / "mobile_types.json"


# Kernels for indices and quantized dtypes are registered individually in every build.
_INDICES: Final = frozenset({"DT_INT32", "DT_INT64"})


_QUANTIZED: Final = ("DT_QINT", "DT_QUINT")


_TYPICAL: Final = "DT_FLOAT"


class _ElementWise(TypedDict):
    classes: list[str]
    usual: list[str]
    others: dict[str, list[str]]


class _MobileTypes(TypedDict):
    compiled: list[str]
    element_wise: _ElementWise


def type_left_out(node: Node, release: str) -> str:
    """Return the dtype for which default mobile builds lack a kernel of a node, if any.

    Args:
        release: TensorFlow release; only default builds of 1.15 omit dtypes.

    Returns:
        Attribute and dtype, such as ``T=DT_INT64``, or an empty string.
    """
    kernel = kernel_class(node, release) if release == TF115 else None
    if kernel is None:
        return ""
    registered = registered_types(node.op, release)
    compiled = _compiled(node.op, kernel)
    for name, labels in sorted(node_types(node, release).items()):
        types = registered.get(name, frozenset())
        is_listed = types <= _INDICES or (compiled is None and _TYPICAL not in types)
        for label in labels:
            if is_listed or label not in types or label.startswith(_QUANTIZED):
                continue
            if label not in (compiled or _table()["compiled"]):
                return f"{name}={label}"
    return ""


def _compiled(op: str, kernel: str) -> list[str] | None:
    """Return the dtypes of an element-wise op's kernels; None for other ops."""
    element_wise = _table()["element_wise"]
    if not kernel.startswith(tuple(element_wise["classes"])):
        return None
    return element_wise["others"].get(op, element_wise["usual"])


@cache
def _table() -> _MobileTypes:
    table: _MobileTypes = json.loads(_FILE.read_text(encoding="utf-8"))
    return table
