"""Every recipe under recipes/ as doit tasks: `doit list` names them, `doit` builds them all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mobileprep.api.tasks import recipe_tasks

DOIT_CONFIG = {"default_tasks": ["recipe"]}


def task_recipe() -> Iterator[dict[str, Any]]:
    """The stages and target folders of every recipe."""
    yield from recipe_tasks(Path("recipes"), Path("out"))
