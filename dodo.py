"""Every recipe under recipes/ as doit tasks: `doit list` names them, `doit` builds them all."""

from collections.abc import Iterator
from typing import Any

import mobileprep

DOIT_CONFIG = {"default_tasks": ["recipe"]}


def task_recipe() -> Iterator[dict[str, Any]]:
    """The stages and target folders of every recipe."""
    yield from mobileprep.recipe_tasks("recipes", "out")
