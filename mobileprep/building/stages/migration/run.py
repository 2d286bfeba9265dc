"""Determine which runtimes can run a target's graph."""

from __future__ import annotations

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.migration.spec import MigrationRecord, MigrationStage
from mobileprep.building.stages.running import with_assets
from mobileprep.errors import MobileprepError
from mobileprep.targets.migration.survey import surveyed
from mobileprep.transforms.base import Context


def run(job: Job[MigrationStage]) -> None:
    """Write ``migration.json``.

    The record is informational, so an error is reported in it and does not fail the build.
    """
    settings = job.asked
    ends = job.record(Interface, settings.interface)
    try:
        context = Context(ends.inputs, ends.outputs)
        with with_assets(job.graph(settings.graph), job.path(settings.assets)) as graph:
            migration = surveyed(graph, context, settings.platform)
        record = MigrationRecord(settings.before, migration)
    except MobileprepError as error:
        record = MigrationRecord(settings.before, untried=error.message)
    job.write_record(settings.RECORD, record)
