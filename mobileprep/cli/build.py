"""The verb ``build``: builds recipes, and runs only stages whose inputs changed."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from mobileprep.building.pipeline.overlaps import check_beside
from mobileprep.building.pipeline.publish import MANIFEST, from_here
from mobileprep.building.pipeline.state import State, files_read, folders_read
from mobileprep.cli._shared.arguments import (
    add_limit_flags,
    exit_code_argument,
    jobs_argument,
    jobs_of,
    out_argument,
    recipe_arguments,
    size_text,
    target_argument,
    targets_of,
)
from mobileprep.cli._shared.diagnostics import add_output_format
from mobileprep.cli._shared.folders import no_wait_argument
from mobileprep.cli._shared.telling import print_note, slowest, warn, warn_all
from mobileprep.cli.verb import Group, verb
from mobileprep.core.files import inside, write_bytes
from mobileprep.core.paths import is_stdout, output_path
from mobileprep.core.printable import plain
from mobileprep.errors import ArtifactError, MobileprepError, UsageError
from mobileprep.recipe.model import Recipe

if TYPE_CHECKING:
    from mobileprep.building.builder import Build, BuiltTarget
    from mobileprep.building.verdicts import Verdict


def build_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a build, which ``watch`` shares."""
    recipe_arguments(parser)
    target_argument(parser)
    out_argument(parser)
    add_limit_flags(parser)
    jobs_argument(parser)
    parser.add_argument(
        "--keep-going", action="store_true", help="Build the other targets after a failure"
    )
    parser.add_argument(
        "--checksum",
        action="store_true",
        help="Hash every input, even if its size and time are unchanged",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="Show what would run without running it"
    )
    exit_code_argument(parser)
    parser.add_argument("--explain", action="store_true", help="Show why each stage runs")
    parser.add_argument("--force", action="store_true", help="Run every stage, cached or not")
    no_wait_argument(parser)
    parser.add_argument(
        "--provenance",
        action="store_true",
        help="Write an in-toto statement with SLSA provenance next to each target directory",
    )
    parser.add_argument(
        "--builder-id",
        default=argparse.SUPPRESS,
        metavar="URI",
        help="Builder named in the provenance [env: MOBILEPREP_BUILDER_ID]",
    )
    parser.add_argument(
        "--locked", action="store_true", help="Fail if an input differs from mobileprep.lock"
    )
    parser.add_argument(
        "--depfile", metavar="FILE", help="Write a dependency file for Make and Ninja"
    )
    add_output_format(parser, "Print reports as JSON, or the planned stages with --dry-run")


@verb(
    "build",
    Group.BUILD,
    "Build recipes: one directory for each target device",
    build_arguments,
    "mobileprep build recipe.yaml",
    "mobileprep build --recursive models --out out -j 4",
    "mobileprep build recipe.yaml --target phone --dry-run --explain",
)
def run(args: argparse.Namespace) -> int:
    """Build, publish, and report; a dry run takes no locks."""
    _check(args)
    started, start_ns = time.perf_counter(), time.time_ns()
    from mobileprep.cli._shared.folders import load_recipes

    recipes, out = load_recipes(args), Path(args.out)
    from mobileprep.building.builder import Build

    build = Build(
        recipes,
        out,
        targets=targets_of(args),
        force=args.force,
        checksum=args.checksum,
        locked=args.locked,
        keep_going=args.keep_going,
        warn=warn,
    )
    build.plan()
    if args.dry_run:
        code = _dry(args, _explain(args, build))
        _raise_first(build.faults)
        return code
    with build.hold(wait=not args.no_wait, tell=print_note):
        _build(args, build, started, start_ns)
    return 0


def _build(args: argparse.Namespace, build: Build, started: float, start_ns: int) -> None:
    from mobileprep.building.pipeline.runner import stale_stages
    from mobileprep.cli._shared.terminal.progress import Progress

    state = build.plan()
    # Check the depfile before publishing: Make treats published files as up to date.
    depfile = None
    if args.depfile is not None:
        path, out = output_path(args.depfile), Path(args.out)
        depfile = Depfile.of(path, build.recipes, state, out, locked=args.locked)
    if args.explain:
        _explain(args, build)
    stale = stale_stages(state)
    seconds = {spec.task: v.last.seconds for spec, v in stale if v.last is not None}
    with Progress(len(stale), seconds, jobs_of(args)) as progress:
        done = build.run(
            jobs=jobs_of(args),
            listen=progress.listen,
            warn=progress.warn,
            advance=progress.advance,
        )
    warn_all(done.warnings)
    _tell_targets(args, done.targets)
    failures = [*build.faults, *done.failures]
    if depfile is not None and not failures:
        depfile.write(start_ns)
    took = time.perf_counter() - started
    _say(f"{len(done.ran)} of {len(state.plan.stages)} stages ran, {took:.2f} s")
    if args.verbose and progress.seconds:
        _say(f"slowest: {slowest(progress.seconds)}")
    as_json = args.output_format == "json"
    if not (as_json and failures):
        from mobileprep.cli._shared.folders import print_reports

        changed = [b.report for b in done.targets if as_json or (b.is_changed and not args.quiet)]
        beside = [b.report for b in done.targets] if changed else []
        print_reports(changed, as_json=as_json, beside=beside)
    _raise_first(failures)


def _tell_targets(args: argparse.Namespace, targets: Sequence[BuiltTarget]) -> None:
    for built in targets:
        if args.provenance:
            from mobileprep.building.targets import write_provenance

            write_provenance(built.folder, _builder(args))
        folder = str(built.folder.relative_to(args.out))
        named = os.path.join(args.out, folder)  # noqa: PTH118 - keeps the spelling
        _say(f"{named}: {'written' if built.is_changed else 'up to date'}")


def _raise_first(failures: Sequence[MobileprepError]) -> None:
    """Print each further failure once, and raise the first one."""
    from mobileprep.cli._shared.failures import tell_error

    messages = {str(error) for error in failures[:1]}
    for error in failures[1:]:
        if str(error) not in messages:
            messages.add(str(error))
            tell_error(error, as_json=False)
    if failures:
        raise failures[0]


def _check(args: argparse.Namespace) -> None:
    jobs_of(args)
    if args.depfile is not None and args.dry_run:
        message = "--depfile needs a build, and --dry-run does not build"
        raise UsageError(message)
    if (
        args.depfile is not None
        and args.output_format == "json"
        and is_stdout(output_path(args.depfile))
    ):
        message = "--json and --depfile cannot both be written to the standard output"
        raise UsageError(message, "name a file after --depfile")
    if args.exit_code and not args.dry_run:
        message = "--exit-code needs --dry-run"
        raise UsageError(message, "a build itself fails with an exit code of its own")
    if args.provenance:
        from mobileprep.building.targets import check_builder

        check_builder(_builder(args))


def _builder(args: argparse.Namespace) -> str:
    from mobileprep.building.targets import BUILDER

    named: str | None = getattr(args, "builder_id", None)
    return os.environ.get("MOBILEPREP_BUILDER_ID") or BUILDER if named is None else named


def _explain(args: argparse.Namespace, build: Build) -> list[Verdict]:
    """Print the pending steps of a build with reasons, and return all verdicts."""
    from mobileprep.building.verdicts import verdict_lines

    judged = build.preview()
    stale = [verdict for verdict in judged if not verdict.fresh]
    for line in verdict_lines(stale, verbose=args.verbose):
        _say(line)
    if not stale:
        _say("nothing to do: every stage is fresh, and every output in its place")
    return judged


def summary(judged: Sequence[Verdict]) -> str:
    """Summarize pending work in one line: stages, their last durations, directories, bytes."""
    from mobileprep.building.verdicts import PUBLISH, WRITE_PAGE

    due = [verdict for verdict in judged if not verdict.fresh]
    stages = [verdict for verdict in due if verdict.stage not in (PUBLISH, WRITE_PAGE)]
    pages = sum(verdict.stage == WRITE_PAGE for verdict in due)
    folders = [verdict for verdict in due if verdict.stage == PUBLISH]
    local = sum(verdict.store_bytes for verdict in due)
    remote = sum(verdict.remote_bytes for verdict in due)
    return (
        f"would run: {_amount(stages)}; would write folders: {_amount(folders)}; "
        + (f"would write pages: {pages}; " if pages else "")
        + f"the store gives {size_text(local)}"
        + (f", the remote store {size_text(remote)}" if remote else "")
    )


def _amount(steps: Sequence[Verdict]) -> str:
    parts = []
    for word, certain in (("for certain", True), ("perhaps", False)):
        group = [step for step in steps if step.certain is certain]
        seconds = [step.seconds for step in group if step.seconds is not None]
        took = f" ({sum(seconds):.2f} s last time)" if seconds else ""
        parts.append(f"{len(group)} {word}{took}")
    return ", ".join(parts)


def _dry(args: argparse.Namespace, judged: list[Verdict]) -> int:
    """Print the summary and the JSON of a dry run, and return the exit code."""
    if any(not verdict.fresh for verdict in judged):
        _say(summary(judged))
    if args.output_format == "json":
        print(json.dumps([verdict.as_data() for verdict in judged], indent=1))
    return int(args.exit_code and not all(verdict.fresh for verdict in judged))


def _say(text: str) -> None:
    print(plain(text, keep="\n"), file=sys.stderr)


# Characters that end a name for Make or Ninja or that the two read differently, and the syntax of
# archive members in Make.
_NO_NAME: Final = re.compile(r"""[\0-\x1f\x7f;|*?<>^`'"&]|\\(?=[ #:]|$)|.\(.*\)$""")


# Characters that change the meaning of a rule for Make if a target contains them.
_NO_TARGET: Final = re.compile(r"[%=]")


_ESCAPED: Final = re.compile(r"[ #:]")


class Depfile(Struct, frozen=True):
    """Dependency file to write after a build: its manifests depend on all files that it read.

    Args:
        path: path of the file.
        text: content of the file.
        manifests: manifests of the target directories.
    """

    path: Path
    text: str
    manifests: tuple[Path, ...]

    @classmethod
    def of(
        cls, path: Path, recipes: Sequence[Recipe], state: State, out: Path, *, locked: bool
    ) -> Depfile:
        """Return the depfile of a planned build."""
        read = files_read(recipes, state.plan, locked=locked) | folders_read(state.plan)
        if not is_stdout(path):
            check_beside(path, read, [inside(out, t.folder) for t in state.plan.targets])
        folders = [target.folder.split("/") for target in state.plan.targets]
        text = depfile_text(
            [str(out.joinpath(*names, MANIFEST)) for names in folders],
            map(from_here, sorted(read)),
        )
        manifests = (inside(out, "/".join((*names, MANIFEST))) for names in folders)
        return cls(path, text, tuple(manifests))

    def write(self, start_ns: int) -> None:
        """Write the file, and set its time and that of the manifests to the start of the build.

        A build does not rewrite unchanged manifests, and Make would consider them older than
        edited inputs on every run. Files that are edited during the build must be newer than the
        manifests, because the build may have read the previous content. Ninja also compares the
        time of the depfile.
        """
        for manifest in self.manifests:
            _set_time(manifest, start_ns)
        # File names may be invalid UTF-8; Make and Ninja read bytes.
        write_bytes(self.path, os.fsencode(self.text))
        if not is_stdout(self.path) and self.path.is_file():
            _set_time(self.path, start_ns)


def _set_time(path: Path, time: int) -> None:
    try:
        os.utime(path, ns=(time, time))
    except OSError as error:
        message = f"its time cannot be set: {error.strerror}"
        raise ArtifactError(message, "", str(path)) from error


def depfile_text(targets: Iterable[str], dependencies: Iterable[str]) -> str:
    """Return a rule without commands, and an empty rule for each dependency like ``gcc -MP``.

    With the empty rules, Make does not fail if a dependency is removed from the recipe and deleted.
    """
    names = [_escaped(name) for name in dependencies]
    heads = " ".join(_escaped(_checked(name, _NO_TARGET)) for name in targets)
    rule = " \\\n ".join([f"{heads}:", *names])
    return "\n".join([rule, *(f"{n}:" for n in names if not _NO_TARGET.search(n)), ""])


def _escaped(name: str) -> str:
    """Escape a name for Make and Ninja; other backslashes are literal."""
    return _ESCAPED.sub(r"\\\g<0>", _checked(name, _NO_NAME).replace("$", "$$"))


def _checked(name: str, refused: re.Pattern[str]) -> str:
    match = refused.search(name)
    if match is not None:
        message = f"{name!r} cannot be written to a depfile, because of {match[0]!r}"
        raise UsageError(message, "Make or Ninja would read another name; rename the file")
    return name
