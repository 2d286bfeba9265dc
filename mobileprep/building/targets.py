"""From recipes to the state of a plan, and from built targets to folders and reports."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    held,
    listed,
    publish,
    read_manifest,
    stays,
)
from mobileprep.building.pipeline.remote.settings import URL
from mobileprep.building.pipeline.runner import Built, check_pins, collect_target
from mobileprep.building.pipeline.state import Fresh, State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.sources import checkpoint_files, graph_files, single_file
from mobileprep.building.plan.spec import PUBLISHED, TargetPlan, Upstream
from mobileprep.building.report.collect import Report, collect_report, report_json
from mobileprep.building.report.text import quantization_text
from mobileprep.core.files import inside, write_text
from mobileprep.errors import CorruptFileError, UsageError, nearest_hint
from mobileprep.recipe.loading import target_folders
from mobileprep.recipe.model import Recipe

if TYPE_CHECKING:
    from mobileprep.building.pipeline.remote.base import Remote


REPORT = "report.json"


def plan_state(
    recipes: Sequence[Recipe],
    targets: Iterable[str] = (),
    *,
    store: Store | None = None,
    force: bool = False,
) -> State:
    """The plan of some recipes against the store, pinned digests checked."""
    wanted = frozenset(targets)
    known = {name for r in recipes for t in r.targets for name in (t.name, t.folder)}
    for name in sorted(wanted - known):
        message = f"no recipe has a target {name!r}"
        raise UsageError(
            message, nearest_hint(name, known) or f"there are {', '.join(sorted(known))}"
        )
    store = store or Store(default_folder())
    state = State(plan_recipes(recipes, wanted), store, force=force)
    _check_pins(recipes, state)
    return state


def shared_store(recipes: Sequence[Recipe], out: Path, files: FileIndex | None = None) -> Store:
    """The user's store for builds of some recipes into a folder.

    Args:
        files: tells which files there, and outside, have not changed; by default what earlier
            builds into that folder have left of it.
    """
    return Store(default_folder(), files or files_of_builds(out), _remote(recipes))


def _remote(recipes: Sequence[Recipe]) -> Remote | None:
    """The remote store that recipes or the environment name."""
    sections = {recipe.cache: recipe for recipe in recipes}
    if len(sections) > 1 and not os.environ.get(URL):
        named = " and ".join(sorted(recipe.file for recipe in sections.values())[:2])
        message = f"{named} do not name the same remote store"
        raise UsageError(message, f"build them one by one, or set {URL} for all")
    if not os.environ.get(URL) and not any(sections):
        return None
    # Only now: few builds share a store.
    from mobileprep.building.pipeline.remote.guarded import open_remote
    from mobileprep.building.pipeline.remote.settings import remote_settings

    return open_remote(remote_settings(next(iter(sections), None), os.environ))


def build_report(built: Built) -> Report:
    """The report of a built target."""
    sizes = {name: output.size for name, output in built.files.items()}
    target = built.target
    quantize = quantization_text(target.settings)
    report = collect_report(target.recipe, target.target, built.records, sizes, quantize)
    return replace(report, tool=TOOL, settings=target.settings, sources=built.sources)


def publish_target(target: TargetPlan, executor: Executor, out: Path) -> tuple[Report, bool]:
    """Bring a target's folder up to date; its report, and whether anything was written."""
    state = executor.state
    built = collect_target(target, state, executor)
    report = build_report(built)
    done = publish(built, {REPORT: report_json(report)}, state.store, out, executor.obtain)
    if done:
        remove_provenance(done.folder)  # it is of what was there before
    return report, bool(done)


def target_changes(built: Built, out: Path, files: FileIndex) -> tuple[Changes, dict[str, bytes]]:
    """What brings a target's folder up to date, and the files there that no stage has left."""
    extra = {REPORT: report_json(build_report(built))}
    return changes(built, extra, out, files), extra


def promised_files(target: TargetPlan, state: State) -> list[str]:
    """The files that a target's folder is sure to get, known before any stage has run."""
    left = [
        name.removeprefix(PUBLISHED)
        for task in target.tasks
        for name in state.plan.stage(task).stage.output_files
        if name.startswith(PUBLISHED)
    ]
    return [*left, REPORT, MANIFEST]


def wanted_outputs(state: State, out: Path) -> set[Upstream]:
    """The outputs of fresh stages that reports are made of, or that folders below ``out`` lack."""
    found = {
        up
        for target in state.plan.targets
        for _, up in target.records
        if isinstance(state.verdict(up.task), Fresh)
    }
    return found.union(*(lacking_outputs(target, state, out) for target in state.plan.targets))


def lacking_outputs(target: TargetPlan, state: State, out: Path) -> set[Upstream]:
    """The outputs of fresh stages that a target's folder does not have as they are."""
    folder = inside(out, target.folder)
    left = {
        Upstream(task, name): output
        for task in target.tasks
        if isinstance(found := state.verdict(task), Fresh)
        for name, output in found.record.outputs.items()
        if name.startswith(PUBLISHED)
    }
    before, files = listed(folder), state.store.files
    return {
        up
        for up, output in left.items()
        if not stays(
            folder, up.output.removeprefix(PUBLISHED), output.sha256, output.size, before, files
        )
    }


def _check_pins(recipes: Sequence[Recipe], state: State) -> None:
    pins = {
        (pin.file.shown, pin.file.place, pin.sha256, state.digest(file))
        for recipe in recipes
        for target in recipe.targets
        for pin in target.source.pins
        for file in single_file(pin.file).members
    }
    check_pins(sorted(pins))


def files_of_builds(out: Path, *, checksum: bool = False) -> FileIndex:
    """What earlier builds into an output folder have hashed."""
    return FileIndex(index_file(default_folder() / FORMAT, out), checksum=checksum)


def being_hashed(
    recipes: Sequence[Recipe], out: Path, targets: Collection[str] = (), *, checksum: bool
) -> FileIndex:
    """What earlier builds have hashed; to hash the models, where that is due, has begun."""
    files = files_of_builds(out, checksum=checksum)
    folders = target_folders(recipes, out, targets) if checksum else ()
    published = [path for folder in folders for path in held(folder)]
    files.begin({*published, *_models(recipes, targets)})
    return files


def _models(recipes: Sequence[Recipe], names: Collection[str]) -> Iterator[Path]:
    """The files of the models that some targets are built from, as far as they are there."""
    targets = [target for recipe in recipes for target in recipe.targets]
    chosen = [t for t in targets if not names or t.name in names or t.folder in names]
    for source in {target.source for target in chosen}:
        with contextlib.suppress(CorruptFileError):  # the plan says so
            yield from (member.path for member in graph_files(source).members)
        if source.checkpoint is not None:
            with contextlib.suppress(CorruptFileError):
                yield from (member.path for member in checkpoint_files(source.checkpoint).members)


BUILD_TYPE: Final = "urn:mobileprep:build:v1"


BUILDER: Final = "urn:mobileprep:builder:unnamed"


_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!#-;=?-\[\]_a-z~%]+\Z")


_LONGEST_URI: Final = 2048


_ENDING: Final = ".provenance.json"


def provenance_path(folder: Path) -> Path:
    """Where the statement on a folder lies: beside it, as it is on all that ships from there."""
    return folder.with_name(f"{folder.name}{_ENDING}")


def stated_folder(path: Path) -> Path | None:
    """The folder that a file is the statement on, by its name; None for other files."""
    name = path.name.removesuffix(_ENDING)
    return path.with_name(name) if name and name != path.name else None


def write_provenance(folder: Path, builder: str = BUILDER) -> Path:
    """Write the statement on a folder that was just built; its path."""
    check_builder(builder)
    path = provenance_path(folder)
    data = statement(read_manifest(folder), builder)
    write_text(path, json.dumps(data, sort_keys=True, indent=1) + "\n", follow=False)
    return path


def remove_provenance(folder: Path) -> bool:
    """Remove the statement on what a folder held before; whether there was one."""
    with contextlib.suppress(OSError):
        provenance_path(folder).unlink()
        return True
    return False


def check_builder(builder: str) -> None:
    """Make sure that a builder is named by a URI."""
    if not _URI.match(builder) or len(builder) > _LONGEST_URI:
        message = f"the builder {builder[:80]!r} is not a URI"
        raise UsageError(message, "name it as in https://ci.example.com/mobile-models")


def statement(manifest: Manifest, builder: str) -> dict[str, Any]:
    """The statement on the files that a manifest lists, and on the manifest."""
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
