"""Refuses a graph that a TensorFlow release named in a recipe cannot load, and says what helps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Final

from mobileprep.errors import UnsupportedError
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.opdefs.definitions import RELEASES, TF115, op_def
from mobileprep.packaging.target_check import Cause, TargetGap, target_gaps
from mobileprep.transforms.base import Context, make_transform

VERSIONS: Final = "versions"
"""What ``allow`` calls a gap of the graph as a whole, after the field of a GraphDef."""

_MAX_LISTED: Final = 20
_LOADS: Final[frozenset[Cause]] = frozenset(
    {"newer op", "newer attribute", "newer value", "newer graph", "removed op"}
)


@dataclass(frozen=True)
class AppBuild:
    """The TensorFlow that an app is built with, by the registration header.

    Args:
        releases: those of the recipe's ``registration``.
        platform: a name of ``targets.PLATFORMS``.
        allow: ops, and ``versions`` for the graph, whose gaps are accepted.
        custom_ops: ops that the app registers itself.
    """

    releases: tuple[str, ...]
    platform: str
    allow: Collection[str] = ()
    custom_ops: Collection[str] = ()

    def gaps(self, graph: Graph, release: str) -> Iterator[TargetGap]:
        """Yield what a release lacks for a graph, apart from what is allowed."""
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
    """Make sure that every release of a build loads and runs a graph.

    Raises:
        UnsupportedError: a release does not, with one line per problem.
    """
    refused = {r: found for r in build.releases if (found := tuple(build.gaps(graph, r)))}
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
    """Yield what makes the graph load, each way tried on it."""
    left = [gap for gaps in refused.values() for gap in gaps]
    if TF115 in refused:
        older = make_transform("downgrade", {}).apply(graph, Context()).graph
        after = tuple(build.gaps(older, TF115))
        if len(after) < len(refused[TF115]):
            others = [gap for r, gaps in refused.items() if r != TF115 for gap in gaps]
            left = [*after, *others]
            rest = f", which fixes all but {len(left)} of them" if left else ""
            yield f"add `- downgrade` to the end of `transforms:`{rest}"
    if not left:
        return
    loading = [r for r in RELEASES if r not in refused and not any(build.gaps(graph, r))]
    if loading:
        newest = loading[-1]
        line = f'registration: {{tensorflow: "{newest}"}}'
        yield f"build the app with TensorFlow {newest}: `{line}`"
        return
    unknown = next(
        (gap.op for gap in left if gap.op and not any(map(partial(op_def, gap.op), RELEASES))), ""
    )
    if unknown:
        declared = f'ops: {{{unknown}: {{kernel: "CLASS", source: FILE.cc}}}}'
        yield f"if the app registers `{unknown}` itself, declare it: `{declared}`"
    yield from (gap.mend for gap in left if gap.op != unknown)
