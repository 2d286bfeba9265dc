"""The kinds of stages that make what goes with a model into an app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mobileprep.options.data import Reading
from mobileprep.plan.spec import Files, Stage, Upstream
from mobileprep.recipe.app import Integration
from mobileprep.recipe.settings import Artifact, InputSpec


@dataclass(frozen=True, kw_only=True)
class IntegrationStage(Stage):
    """The code by which an app runs the model, and the names of its classes.

    Args:
        integration: what is asked for.
        file: the name of the model file.
        artifact: its form.
        inputs: what is fed, as far as the recipe says.
        reading: how pictures become values of ``picture_input``, or None.
        picture_input: the input that gets pictures; None for the only one.
        labels: the name of the file of classes to leave; empty for none.
        classes: the file that lists them.
        graph: the graph after all transforms.
        interface: what is fed and fetched.
    """

    stage_name: ClassVar[str] = "integration"
    stage_version: ClassVar[int] = 1

    integration: Integration
    file: str
    artifact: Artifact
    inputs: tuple[InputSpec, ...] = ()
    reading: Reading | None = None
    picture_input: str | None = None
    labels: str = ""
    classes: Files | None = None
    graph: Upstream
    interface: Upstream
