"""Quick frozen dataclasses do what Python's own do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from mobileprep.core import frozen


def made(dataclass: Callable[..., Any]) -> dict[str, type]:
    """Classes of several kinds, by either decorator."""

    @dataclass(frozen=True)
    class Empty:
        """Nothing."""

    @dataclass(frozen=True)
    class One:
        value: object

    @dataclass(frozen=True)
    class Several:
        first: int
        second: str = "b"
        third: list[int] = field(default_factory=list, compare=False)
        fourth: object = field(default=None, repr=False)

    @dataclass(frozen=True)
    class Own:
        value: int
        doubled: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "doubled", 2 * self.value)

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    @dataclass(frozen=True, kw_only=True)
    class Base:
        value: int = 1

    @dataclass(frozen=True, kw_only=True)
    class Below(Base):
        other: int

    @dataclass(frozen=True, order=True)
    class Ordered:
        value: int
        second: str = ""
        aside: int = field(default=0, compare=False)

    @dataclass(frozen=True, slots=True)
    class Slotted:
        value: int
        second: list[int] = field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class BelowSlotted(Slotted):
        third: str = "c"

    classes = (Empty, One, Several, Own, Base, Below, Ordered, Slotted, BelowSlotted)
    return {c.__name__: c for c in classes}


OURS, THEIRS = made(frozen.dataclass), made(dataclasses.dataclass)
MADE: list[tuple[str, dict[str, Any]]] = [
    ("Empty", {}),
    ("One", {"value": 3}),
    ("One", {"value": float("nan")}),
    ("Several", {"first": 1}),
    ("Several", {"first": 1, "third": [4]}),
    ("Several", {"first": 2, "second": "c", "fourth": 5}),
    ("Own", {"value": 1}),
    ("Base", {}),
    ("Below", {"other": 2}),
    ("Ordered", {"value": 1}),
    ("Slotted", {"value": 1}),
    ("BelowSlotted", {"value": 1, "third": "d"}),
]
RIGHT = dict(MADE)


@pytest.mark.parametrize("before", [0, 20])
@pytest.mark.parametrize(("name", "fields"), MADE)
def test_objects_are_shown_compared_hashed_and_kept_as_with_python(
    name: str, fields: dict[str, Any], before: int
) -> None:
    classes = made(frozen.dataclass)
    for _ in range(before):
        classes[name](**fields)
    ours, theirs = classes[name](**fields), THEIRS[name](**fields)
    assert repr(ours) == repr(theirs)
    assert _hash(ours) == _hash(theirs)
    assert ours == classes[name](**fields)
    assert ours != theirs or name == "Own"
    assert copy.deepcopy(ours) == dataclasses.replace(ours) == ours or fields.get("value") != 3
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert str(inspect.signature(classes[name])) == str(inspect.signature(THEIRS[name]))
    for change in (lambda: setattr(ours, "value", 2), lambda: delattr(ours, "value")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()


def _hash(made: object) -> int | str:
    try:
        return hash(made)
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("name", sorted(OURS))
def test_what_makes_an_object_is_told_before_the_first_is_made(name: str) -> None:
    fresh, theirs = made(frozen.dataclass)[name], THEIRS[name]
    assert str(inspect.signature(fresh)) == str(inspect.signature(theirs))
    assert fresh.__init__.__annotations__ == theirs.__init__.__annotations__
    assert fresh.__init__.__qualname__ == theirs.__init__.__qualname__
    assert fresh.__match_args__ == theirs.__match_args__  # type: ignore[attr-defined]


@pytest.mark.parametrize("before", [0, 20])
@pytest.mark.parametrize(
    ("name", "given", "named"),
    [
        ("Several", (), {}),
        ("Several", (1, 2, 3, 4, 5), {}),
        ("Several", (1,), {"first": 2}),
        ("Several", (1,), {"fifth": 2}),
        ("Own", (1,), {"doubled": 2}),
        ("Below", (1,), {}),
        ("Below", (), {"value": 1}),
    ],
)
def test_wrong_arguments_are_refused_as_python_does(
    name: str, given: tuple[int, ...], named: dict[str, int], before: int
) -> None:
    told = []
    for classes in (made(frozen.dataclass), THEIRS):
        for _ in range(before):
            classes[name](**RIGHT[name])
        with pytest.raises(TypeError) as caught:
            classes[name](*given, **named)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_fields_may_have_any_name_and_values_come_in_order() -> None:
    @frozen.dataclass(frozen=True)
    class Named:
        instance: int
        cls: int = 2
        values: int = 3

    for _ in range(20):
        assert Named(instance=1).instance == 1
        assert dataclasses.astuple(Named(4, 5, values=6)) == (4, 5, 6)


def test_a_plain_class_below_may_hold_more() -> None:
    class More(OURS["One"]):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(3)
            self.more = 4

    one = More()
    assert (one.value, one.more) == (3, 4)
    del one.more
    for change in (lambda: setattr(one, "value", 2), lambda: delattr(one, "value")):
        with pytest.raises(dataclasses.FrozenInstanceError, match="field 'value'"):
            change()


@pytest.mark.parametrize("name", sorted({name for name, _ in MADE}))
def test_comparisons_are_those_of_python(name: str) -> None:
    given = [fields for each, fields in MADE if each == name]
    ours = [[OURS[name](**a) == OURS[name](**b) for b in given] for a in given]
    theirs = [[THEIRS[name](**a) == THEIRS[name](**b) for b in given] for a in given]
    assert ours == theirs


def test_a_subclass_by_either_is_another_class() -> None:
    below = dataclasses.dataclass(frozen=True)(type("More", (OURS["One"],), {}))
    assert below(1) == below(1)
    assert below(1) != OURS["One"](1)
    assert OURS["One"](1).__eq__(3) is NotImplemented


def test_what_holds_itself_is_shown() -> None:
    held: list[object] = []
    one = OURS["One"](held)
    held.append(one)
    assert repr(one).endswith("One(value=[...])")


@frozen.dataclass(frozen=True)
class Kept:
    """One that pickle finds."""

    value: int


@frozen.dataclass(frozen=True, slots=True)
class KeptInSlots:
    """One without a ``__dict__`` that pickle finds."""

    value: int


@pytest.mark.parametrize("kept", [Kept(3), KeptInSlots(3)])
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_objects_are_pickled(kept: object, protocol: int) -> None:
    assert pickle.loads(pickle.dumps(kept, protocol)) == kept


def test_slots_hold_the_fields_and_nothing_else() -> None:
    for name in ("Slotted", "BelowSlotted"):
        assert OURS[name].__slots__ == THEIRS[name].__slots__  # type: ignore[attr-defined]
        with pytest.raises((AttributeError, TypeError)):
            object.__setattr__(OURS[name](1), "more", 2)


def test_a_dataclass_that_is_not_frozen_is_pythons() -> None:
    plain = frozen.dataclass(type("Plain", (), {"__annotations__": {"value": int}}))
    one = plain(1)
    one.value = 2
    assert one == plain(2)


def test_objects_of_one_class_are_in_order_by_their_fields() -> None:
    answers = []
    for classes in (OURS, THEIRS):
        kind = classes["Ordered"]
        pairs = itertools.product([kind(1, "b"), kind(1, "a", 5), kind(0, "c")], repeat=2)
        answers.append([(a < b, a <= b, a > b, a >= b) for a, b in pairs])
        assert sorted([kind(2), kind(1)]) == [kind(1), kind(2)]
        with pytest.raises(TypeError, match="not supported between"):
            assert kind(1) < 1
        with pytest.raises(TypeError, match="not supported between"):
            assert classes["One"](1) < classes["One"](2)
    assert answers[0] == answers[1]
