"""Frozen dataclasses that are made in a fifth of the time of Python's own.

Before CPython 3.13 each takes a third of a millisecond: six functions are written as text and
compiled for it, and a build makes nearly three hundred of them before it starts. Here
none is compiled at first: comparing, hashing, showing and refusing to change go by the fields, and
are the same for all classes; what makes an object is compiled after the first few, which most
classes never come to. They do what Python's do, and whatever knows dataclasses takes these for
such, type checkers too. Meant for classes of which a build has hundreds of objects, not millions:
to compare two takes a call more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from operator import attrgetter, ge, gt, le, lt
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, kw_only=False, order=False, slots=False, **others):  # noqa: ANN001, ANN003, ANN201 - as Python's
        """``dataclasses.dataclass``, quick for ``frozen=True`` with the flags that are named."""

        def make(found: type) -> type:
            if not frozen or others:
                plain = dataclasses.dataclass(
                    frozen=frozen, kw_only=kw_only, order=order, slots=slots, **others
                )
                return plain(found)
            # Without a text Python makes one of the signature, which takes a millisecond or two.
            found.__doc__ = found.__doc__ or found.__name__
            # Python lets no frozen dataclass come below one that is not, and the other way round.
            below = any(dataclasses.is_dataclass(base) for base in found.__bases__)
            bare = dataclasses.dataclass(
                init=False, repr=False, eq=False, frozen=below, kw_only=kw_only, slots=slots
            )
            return _complete(bare(found), order=order, slots=slots)

        return make if cls is None else make(cls)


def fields_of(instance: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass's
    """An object's fields by name, as they are: ``json.dumps`` takes this for its ``default``.

    ``dataclasses.asdict`` copies whatever they hold first, which takes longer than writing it.
    """
    return {f.name: getattr(instance, f.name) for f in dataclasses.fields(instance)}


class _Factory:
    """Stands in signatures for a value that is made anew for each object."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY: Final = _Factory()
# So many objects of a class are made before a function is compiled that makes them.
_FEW: Final = 8


def _complete(cls: type, *, order: bool, slots: bool) -> type:
    """Give a dataclass what it lacks of making, comparing, hashing and showing."""
    fields = dataclasses.fields(cls)
    compared = _values([f.name for f in fields if f.compare])

    def equal(self: object, other: object) -> object:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def hashed(self: object) -> int:
        return hash(compared(self))

    own = cls.__dict__
    # A class that compares itself, and has no hash of its own, has None there.
    wanted = {"__eq__": equal, "__hash__": hashed, "__repr__": _shown, "__init__": _Init(cls)}
    if order:
        wanted |= _ordering(compared)
    if slots:
        wanted |= {"__getstate__": _state, "__setstate__": _set_state}
    if not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        wanted |= _refusing(cls, frozenset(f.name for f in fields))
        cls.__dataclass_params__.frozen = True  # type: ignore[attr-defined]
    for name, function in wanted.items():
        if own.get(name) is None:
            setattr(cls, name, function)
    return cls


def _ordering(compared: Callable[[object], tuple[Any, ...]]) -> dict[str, Any]:
    """What puts objects of one class in order, by their fields."""

    def by(compare: Callable[[Any, Any], bool]) -> Callable[[object, object], object]:
        def ordered(self: object, other: object) -> object:
            if other.__class__ is not self.__class__:
                return NotImplemented
            return compare(compared(self), compared(other))

        return ordered

    return {"__lt__": by(lt), "__le__": by(le), "__gt__": by(gt), "__ge__": by(ge)}


def _refusing(cls: type[Any], names: frozenset[str]) -> dict[str, Any]:
    """What refuses to set and delete attributes, as Python's do."""

    def setting(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            message = f"cannot assign to field {name!r}"
            raise dataclasses.FrozenInstanceError(message)
        super(cls, self).__setattr__(name, value)

    def deleting(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            message = f"cannot delete field {name!r}"
            raise dataclasses.FrozenInstanceError(message)
        super(cls, self).__delattr__(name)

    return {"__setattr__": setting, "__delattr__": deleting}


class _Init:
    """Stands for a class's ``__init__`` until that is worth its making, or asked for.

    To compile one takes longer than to set the fields of a few objects without, and most classes
    have no more.
    """

    def __init__(self, cls: type) -> None:
        self._cls = cls
        self._left = _FEW

    def __get__(self, instance: object, owner: type) -> Any:  # noqa: ANN401 - a method
        if instance is not None and self._left:
            self._left -= 1
            return partial(self._set, instance)
        made = _init(self._cls)
        self._cls.__init__ = made  # type: ignore[misc]
        return made if instance is None else made.__get__(instance, owner)

    def _set(self, instance: object, /, *values: object, **named: object) -> None:
        given = _given(self._cls, values, named)
        if given is None:
            # What is wrong with the arguments, Python itself tells best.
            _init(self._cls)(instance, *values, **named)
            return
        for name, value in given:
            object.__setattr__(instance, name, value)
        if hasattr(instance, "__post_init__"):
            instance.__post_init__()


def _given(
    cls: type, values: tuple[object, ...], named: dict[str, object]
) -> list[tuple[str, object]] | None:
    """What the fields of a new object are to be, in order; None where the arguments do not fit."""
    fields = dataclasses.fields(cls)
    found = dict(zip((f.name for f in fields if f.init and not f.kw_only), values, strict=False))
    if len(found) < len(values) or found.keys() & named.keys():
        return None
    found.update(named)
    given: list[tuple[str, object]] = []
    for field in fields:
        if field.init and field.name in found:
            given.append((field.name, found.pop(field.name)))
        elif field.default_factory is not dataclasses.MISSING:
            given.append((field.name, field.default_factory()))
        elif field.init and field.default is dataclasses.MISSING:
            return None
        elif field.init:
            given.append((field.name, field.default))
    return None if found else given


def _init(cls: type) -> Callable[..., None]:
    """The function that sets the fields of a new object."""
    fields = dataclasses.fields(cls)
    known: dict[str, Any] = {"_frozen_set": object.__setattr__, "_FACTORY": _FACTORY}
    taken = [f for f in fields if f.init]
    named = [f for f in taken if f.kw_only]
    parameters = ["self", *(_parameter(f, known) for f in taken if not f.kw_only)]
    parameters += ["*", *(_parameter(f, known) for f in named)] if named else []
    lines = [f"def __init__({', '.join(parameters)}):", " pass"]
    lines += [f" _frozen_set(self, {f.name!r}, {_value(f, known)})" for f in fields if _is_set(f)]
    lines += [" self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    exec("\n".join(lines), known)
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {f.name: f.type for f in taken} | {"return": None}
    return made


def _is_set(field: dataclasses.Field[Any]) -> bool:
    return field.init or field.default_factory is not dataclasses.MISSING


def _parameter(field: dataclasses.Field[Any], known: dict[str, Any]) -> str:
    if field.default is not dataclasses.MISSING:
        known[f"_default_{field.name}"] = field.default
        return f"{field.name}=_default_{field.name}"
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.name}=_FACTORY"
    return field.name


def _value(field: dataclasses.Field[Any], known: dict[str, Any]) -> str:
    if field.default_factory is dataclasses.MISSING:
        return field.name
    known[f"_made_{field.name}"] = field.default_factory
    fresh = f"_made_{field.name}()"
    return f"{fresh} if {field.name} is _FACTORY else {field.name}" if field.init else fresh


def _state(self: Any) -> list[Any]:  # noqa: ANN401 - of any dataclass
    """What pickles and copies hold of an object with slots, as with Python's."""
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:  # noqa: ANN401 - of any dataclass
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


def _values(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    """What gives the fields of those names."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda instance: tuple(getattr(instance, name) for name in names)


@recursive_repr()
def _shown(self: Any) -> str:  # noqa: ANN401 - of any dataclass
    values = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(values)})"
