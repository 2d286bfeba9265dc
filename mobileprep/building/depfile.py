"""What a build reads, as Make, Ninja and CMake take it: a depfile."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from mobileprep.building.pipeline.folder_reasons import from_here
from mobileprep.building.pipeline.overlaps import check_beside
from mobileprep.building.pipeline.publish import MANIFEST
from mobileprep.building.pipeline.state import State, files_read, folders_read
from mobileprep.core.files import inside, write_bytes
from mobileprep.core.paths import is_stdout
from mobileprep.errors import ArtifactError, UsageError
from mobileprep.recipe.model import Recipe

# What ends a name for Make or for Ninja, what the two do not read alike, and what to Make is a
# member of an archive.
_NO_NAME: Final = re.compile(r"""[\0-\x1f\x7f;|*?<>^`'"&]|\\(?=[ #:]|$)|.\(.*\)$""")
# What makes another thing of a rule for Make where it stands in a target.
_NO_TARGET: Final = re.compile(r"[%=]")
_ESCAPED: Final = re.compile(r"[ #:]")


class Depfile(Struct, frozen=True):
    """What is to be written once a build is done: its manifests depend on all that it read.

    Args:
        path: the file.
        text: what it will hold.
        manifests: those of the target folders.
    """

    path: Path
    text: str
    manifests: tuple[Path, ...]

    @classmethod
    def of(
        cls, path: Path, recipes: Sequence[Recipe], state: State, out: Path, *, locked: bool
    ) -> Depfile:
        """The depfile of a build that is still to come."""
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

    def write(self, begun: int) -> None:
        """Write it, and set its time and the manifests' to when the build began.

        A build leaves a manifest alone that says what it said before, and Make would take it for
        older than what was edited since, again and again. What was edited while the build ran has
        to be newer than the manifests: the build may have read it before. Ninja goes by the time
        of the depfile, too.
        """
        for manifest in self.manifests:
            _set_time(manifest, begun)
        # Names need not be UTF-8, and Make and Ninja take bytes.
        write_bytes(self.path, os.fsencode(self.text))
        if not is_stdout(self.path) and self.path.is_file():
            _set_time(self.path, begun)


def _set_time(path: Path, time: int) -> None:
    try:
        os.utime(path, ns=(time, time))
    except OSError as error:
        message = f"its time cannot be set: {error.strerror}"
        raise ArtifactError(message, "", str(path)) from error


def depfile_text(targets: Iterable[str], dependencies: Iterable[str]) -> str:
    """A rule without commands, and, as GCC's ``-MP`` does, an empty one for each dependency.

    The empty ones let Make go on where a file is gone that the recipe names no longer.
    """
    names = [_escaped(name) for name in dependencies]
    heads = " ".join(_escaped(_checked(name, _NO_TARGET)) for name in targets)
    rule = " \\\n ".join([f"{heads}:", *names])
    return "\n".join([rule, *(f"{n}:" for n in names if not _NO_TARGET.search(n)), ""])


def _escaped(name: str) -> str:
    """A name as Make and Ninja read it, in which backslashes count only before what they escape."""
    return _ESCAPED.sub(r"\\\g<0>", _checked(name, _NO_NAME).replace("$", "$$"))


def _checked(name: str, refused: re.Pattern[str]) -> str:
    found = refused.search(name)
    if found is not None:
        message = f"{name!r} cannot stand in a depfile, because of {found[0]!r}"
        raise UsageError(message, "Make or Ninja would read another name; rename the file")
    return name
