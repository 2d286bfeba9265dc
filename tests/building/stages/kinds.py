"""All classes of stages."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from mobileprep.building import stages
from mobileprep.building.plan.spec import Stage


def _kinds(kind: type[Stage]) -> Iterator[type[Stage]]:
    for below in kind.__subclasses__():
        if below.__module__.startswith("mobileprep.") and hasattr(below, "stage_name"):
            yield below
        yield from _kinds(below)


for module in pkgutil.iter_modules(stages.__path__, f"{stages.__name__}."):
    if module.ispkg:
        importlib.import_module(f"{module.name}.spec")

STAGES = tuple(sorted(dict.fromkeys(_kinds(Stage)), key=lambda kind: kind.stage_name))
