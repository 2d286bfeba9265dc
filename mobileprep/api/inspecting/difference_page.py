"""The page of what two models differ in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from mobileprep.api.inspecting.differing import ModelDifference, diff
from mobileprep.api.paths import Warn
from mobileprep.api.running import opened
from mobileprep.core.files import write_bytes
from mobileprep.inspection.node_table import node_table
from mobileprep.ir.graph import Graph
from mobileprep.pipeline.published import TOOL
from mobileprep.report.page.data import FORMAT
from mobileprep.report.page.render import render_page

_MOST: Final = 20_000
"""A page lists no more differences: browsers take long to read it."""


def diff_page(
    a: Path,
    b: Path,
    page: Path,
    *,
    tolerance: float,
    samples: int,
    outputs: Sequence[str],
    warn: Warn,
) -> ModelDifference:
    """Compare two models as ``diff`` does, and write the page of what they differ in.

    Args:
        a: the path of a model.
        b: that of the other.
        page: where the page goes.
        tolerance: see ``diff``, as the others.

    Raises:
        ArtifactError: the page cannot be written.
        MobileprepError: what ``diff`` raises.
    """
    first, second = (opened(model, (), warn) for model in (a, b))
    wanted = [first.tensor(name) for name in outputs or first.outputs]
    compared = diff(
        first.graph, second.graph, tolerance=tolerance, samples=samples, outputs=wanted, warn=warn
    )
    found = replace(compared, a=str(a), b=str(b))
    write_bytes(page, render_page(_data(found, [first.graph, second.graph])))
    return found


def _data(found: ModelDifference, graphs: Sequence[Graph]) -> dict[str, Any]:
    told = found.as_data()
    kinds = Counter(d.kind for d in found.differences if d.kind in ("added", "removed"))
    changed = {d.name for d in found.differences if d.kind not in kinds}
    counts = {"added": kinds["added"], "removed": kinds["removed"], "changed": len(changed)}
    return {
        "format": FORMAT,
        "recipe": f"{Path(found.a).name} and {Path(found.b).name}",
        "tool": TOOL,
        "targets": [],
        "difference": {**told, "differences": told["differences"][:_MOST], "counts": counts},
        "graphs": [{**asdict(node_table(graph, {})), "weights": []} for graph in graphs],
        "ops": [sorted(Counter(node.op for node in graph).items()) for graph in graphs],
    }
