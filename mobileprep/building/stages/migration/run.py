"""Determine which runtimes can run a target's graph."""

from __future__ import annotations

from mobileprep.building.stages.base import Job, stage
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.building.stages.migration.spec import MigrationRecord, MigrationStage
from mobileprep.building.stages.running import with_assets
from mobileprep.errors import MobileprepError
from mobileprep.targets.migration.survey import surveyed
from mobileprep.transforms.base import Context


@stage(MigrationStage)
def run(job: Job[MigrationStage]) -> None:
    """Write ``migration.json``.

    The record is informational, so an error is reported in it and does not fail the build.
    """
    asked = job.asked
    ends = job.record(Interface, asked.interface)
    try:
        context = Context(ends.inputs, ends.outputs)
        with with_assets(job.graph(asked.graph), job.path(asked.assets)) as graph:
            found = surveyed(graph, context, asked.platform)
        record = MigrationRecord(asked.before, found)
    except MobileprepError as error:
        record = MigrationRecord(asked.before, untried=error.message)
    job.write_record(asked.RECORD, record)
