"""Options declared by Structs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Struct

from mobileprep.core.declare import Option, declared

SIZE, WORD, FILE = Option("A size.", minimum=1), Option("A word."), Option("A file.")


class Sample(Struct, frozen=True):
    """One option of each form, and a field that is not an option."""

    sizes: Annotated[tuple[int, ...], SIZE]
    word: Annotated[Literal["a", "b"], WORD] = "b"
    maybe: Annotated[float | None, Option("Perhaps.")] = None
    file: Annotated[Path | None, FILE] = None
    listed: Annotated[str, Option("One of two.", choices=("x", "y"))] = "x"
    internal: int = 3


def test_every_option_form_is_declared() -> None:
    sizes, word, maybe, file, listed = declared(Sample)
    assert (sizes.name, sizes.kind, sizes.repeated, sizes.required) == ("sizes", int, True, True)
    assert sizes.option is SIZE
    assert (word.kind, word.choices, word.default, word.required) == (str, ("a", "b"), "b", False)
    assert (maybe.kind, maybe.default, maybe.required) == (float, None, False)
    assert (file.kind, file.repeated) == (Path, False)
    assert (listed.choices, listed.default) == (("x", "y"), "x")


def test_inherited_options_come_first() -> None:
    class More(Sample, frozen=True):
        last: Annotated[bool, Option("The last.")] = False

    assert [option.name for option in declared(More)][-2:] == ["listed", "last"]
