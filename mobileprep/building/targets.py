"""Plan recipes, publish their targets, and write reports and provenance."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from mobileprep.building.pipeline.cache_files import FORMAT, default_folder, index_file
from mobileprep.building.pipeline.execute import Executor
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.publish import (
    MANIFEST,
    TOOL,
    Changes,
    Manifest,
    changes,
    listed,
    publish,
    read_manifest,
    stays,
)
from mobileprep.building.pipeline.remote.settings import URL
from mobileprep.building.pipeline.runner import Built, collect_target
from mobileprep.building.pipeline.state import Fresh, State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.sources import single_file
from mobileprep.building.plan.spec import PUBLISHED, TargetPlan, Upstream
from mobileprep.building.report.collect import Report, collect_report, report_json
from mobileprep.building.report.text import quantization_text
from mobileprep.core.files import inside, write_text
from mobileprep.errors import CorruptFileError, UsageError, nearest_hint
from mobileprep.recipe.model import Recipe

if TYPE_CHECKING:
    from mobileprep.building.pipeline.remote.guarded import Remote


REPORT = "report.json"


def plan_state(
    recipes: Sequence[Recipe],
    targets: Iterable[str] = (),
    *,
    store: Store | None = None,
    force: bool = False,
) -> State:
    """Plan recipes against the cache, and check pinned digests.

    Raises:
        UsageError: a target does not exist.
        CorruptFileError: an input is missing or differs from its pinned digest.
    """
    requested = frozenset(targets)
    names = {name for r in recipes for t in r.targets for name in (t.name, t.folder)}
    for name in sorted(requested - names):
        message = f"no recipe has a target {name!r}"
        raise UsageError(
            message, nearest_hint(name, names) or f"there are {', '.join(sorted(names))}"
        )
    store = store or Store(default_folder())
    state = State(plan_recipes(recipes, requested), store, force=force)
    _check_pins(recipes, state)
    return state


def shared_store(recipes: Sequence[Recipe], out: Path, *, checksum: bool = False) -> Store:
    """Return the user's cache for building recipes into a directory.

    Args:
        recipes: the recipes, which may name a remote cache.
        out: the output directory.
        checksum: hash every file instead of trusting the index of earlier builds into ``out``.
    """
    files = FileIndex(index_file(default_folder() / FORMAT, out), checksum=checksum)
    return Store(default_folder(), files, _remote(recipes))


def _remote(recipes: Sequence[Recipe]) -> Remote | None:
    """Open the remote cache of the recipes or the environment."""
    sections = {recipe.cache: recipe for recipe in recipes}
    if len(sections) > 1 and not os.environ.get(URL):
        named = " and ".join(sorted(recipe.file for recipe in sections.values())[:2])
        message = f"{named} do not name the same remote store"
        raise UsageError(message, f"build them one by one, or set {URL} for all")
    if not os.environ.get(URL) and not any(sections):
        return None
    # Imported late because few builds share a cache.
    from mobileprep.building.pipeline.remote.guarded import open_remote
    from mobileprep.building.pipeline.remote.settings import remote_settings

    return open_remote(remote_settings(next(iter(sections), None), os.environ))


def build_report(built: Built) -> Report:
    sizes = {name: output.size for name, output in built.files.items()}
    target = built.target
    quantize = quantization_text(target.settings)
    report = collect_report(target.recipe, target.target, built.records, sizes, quantize)
    return replace(report, tool=TOOL, settings=target.settings, sources=built.sources)


def publish_target(target: TargetPlan, executor: Executor, out: Path) -> tuple[Report, bool]:
    """Update a target's directory; return its report and whether anything was written."""
    state = executor.state
    built = collect_target(target, state, executor)
    report = build_report(built)
    done = publish(built, {REPORT: report_json(report)}, state.store, out, executor.obtain)
    if done:
        remove_provenance(done.folder)  # describes the previous content
    return report, bool(done)


def target_changes(built: Built, out: Path, files: FileIndex) -> tuple[Changes, dict[str, bytes]]:
    """Return the changes of a target's directory, and the files that are not stage outputs."""
    extra = {REPORT: report_json(build_report(built))}
    return changes(built, extra, out, files), extra


def promised_files(target: TargetPlan, state: State) -> list[str]:
    """Return the files that a target's directory will certainly contain, before any stage runs."""
    files = [
        name.removeprefix(PUBLISHED)
        for task in target.tasks
        for name in state.plan.stage(task).stage.output_files
        if name.startswith(PUBLISHED)
    ]
    return [*files, REPORT, MANIFEST]


def wanted_outputs(state: State, out: Path) -> set[Upstream]:
    """Return outputs of fresh stages that reports need or that directories in ``out`` lack."""
    outputs = {
        up
        for target in state.plan.targets
        for _, up in target.records
        if isinstance(state.verdict(up.task), Fresh)
    }
    return outputs.union(*(lacking_outputs(target, state, out) for target in state.plan.targets))


def lacking_outputs(target: TargetPlan, state: State, out: Path) -> set[Upstream]:
    """Return outputs of fresh stages that a target's directory lacks or has with other content."""
    folder = inside(out, target.folder)
    outputs = {
        Upstream(task, name): output
        for task in target.tasks
        if isinstance(verdict := state.verdict(task), Fresh)
        for name, output in verdict.record.outputs.items()
        if name.startswith(PUBLISHED)
    }
    before, files = listed(folder), state.store.files
    return {
        up
        for up, output in outputs.items()
        if not stays(
            folder, up.output.removeprefix(PUBLISHED), output.sha256, output.size, before, files
        )
    }


def _check_pins(recipes: Sequence[Recipe], state: State) -> None:
    """Check the digests that recipes pin.

    Raises:
        CorruptFileError: a digest does not match.
    """
    wrong = {
        f"{pin.file.place}: {pin.file.shown} has the sha256 {digest}, and the recipe pins "
        f"{pin.sha256}"
        for recipe in recipes
        for target in recipe.targets
        for pin in target.source.pins
        for file in single_file(pin.file).members
        if (digest := state.digest(file)) != pin.sha256
    }
    if wrong:
        hint = "restore the file, or pin its new digest if the change is meant"
        raise CorruptFileError("\n".join(sorted(wrong)), hint)


BUILD_TYPE: Final = "urn:mobileprep:build:v1"


BUILDER: Final = "urn:mobileprep:builder:unnamed"


_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!#-;=?-\[\]_a-z~%]+\Z")


_LONGEST_URI: Final = 2048


_ENDING: Final = ".provenance.json"


def provenance_path(folder: Path) -> Path:
    """Return the path of a directory's provenance, next to it because it covers all its files."""
    return folder.with_name(f"{folder.name}{_ENDING}")


def stated_folder(path: Path) -> Path | None:
    """Return the directory that a provenance file describes, by its name; None for other files."""
    name = path.name.removesuffix(_ENDING)
    return path.with_name(name) if name and name != path.name else None


def write_provenance(folder: Path, builder: str = BUILDER) -> Path:
    """Write the provenance of a directory that was just built, and return its path."""
    check_builder(builder)
    path = provenance_path(folder)
    data = statement(read_manifest(folder), builder)
    write_text(path, json.dumps(data, sort_keys=True, indent=1) + "\n", follow=False)
    return path


def remove_provenance(folder: Path) -> bool:
    """Remove the provenance of a directory; return whether there was one."""
    with contextlib.suppress(OSError):
        provenance_path(folder).unlink()
        return True
    return False


def check_builder(builder: str) -> None:
    """Check that a builder is a URI.

    Raises:
        UsageError: the builder is not a URI.
    """
    if not _URI.match(builder) or len(builder) > _LONGEST_URI:
        message = f"the builder {builder[:80]!r} is not a URI"
        raise UsageError(message, "name it as in https://ci.example.com/mobile-models")


def statement(manifest: Manifest, builder: str) -> dict[str, Any]:
    """Create the provenance of a manifest and the files that it lists, as an in-toto statement."""
    tool, _, version = manifest.tool.rpartition(" ")
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": _resources({**manifest.files, MANIFEST: manifest.sha256}),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "recipe": manifest.recipe,
                    "target": manifest.target,
                    "settings": manifest.settings,
                },
                "resolvedDependencies": _resources(manifest.sources),
            },
            "runDetails": {"builder": {"id": builder, "version": {tool: version}}},
        },
    }


def _resources(digests: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "digest": {"sha256": digests[name]}} for name in sorted(digests)]
