"""The language of the Graph Transform Tool's ``--transforms`` flag, as the original reads it."""

from __future__ import annotations

import re
from typing import NamedTuple

from mobileprep.recipe.tree import show

MAX_CHARACTERS = 1 << 16
MAX_CALLS = 1_000

_SPACES = re.compile(r"[ \t\n\v\f\r]*")
_NAME = re.compile(r"[A-Za-z0-9_]+")
_BARE_VALUE = re.compile(r"[A-Za-z0-9./_-]+")
_QUOTED_VALUE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)


class Argument(NamedTuple):
    """One ``name=value``; ``offset`` and ``value_offset`` count characters of the chain."""

    name: str
    value: str
    offset: int
    value_offset: int


class Call(NamedTuple):
    """One transform with its arguments in the order written.

    Args:
        name: the transform's.
        arguments: in the order written.
        offset: where the name begins, in characters of the chain.
        spaced: whether white space stands between the name and ``(``.
    """

    name: str
    arguments: tuple[Argument, ...]
    offset: int
    spaced: bool = False


class Fault(NamedTuple):
    """Where and why a chain cannot be read."""

    offset: int
    message: str
    hint: str = ""


class Chain(NamedTuple):
    """What a chain says.

    Args:
        calls: the transforms that were read to their end.
        fault: what stopped the reading, or None.
        unfinished: a last transform whose ``)`` is missing. The original drops it in silence.
    """

    calls: tuple[Call, ...]
    fault: Fault | None = None
    unfinished: Call | None = None


def parse_chain(text: str) -> Chain:
    """Read a chain with the grammar of ``ParseTransformParameters`` of TensorFlow 1.15.

    Transforms are separated by white space. Arguments follow the name at once, in
    parentheses, separated by white space or by one comma directly after a value. Values are
    letters, digits and ``-./_``, or anything in double quotes, where a backslash keeps the
    quote after it from ending the value and stays part of it. A stray quote after a value is
    skipped, and white space before ``)`` is an error, as in the original.

    White space before ``(``, as a book prints it, is an error to the original and marked here.
    Chains of more than ``MAX_CHARACTERS`` or ``MAX_CALLS`` are faults here alone.
    """
    if len(text) > MAX_CHARACTERS:
        message = f"a chain has at most {MAX_CHARACTERS:,} characters"
        return Chain((), Fault(0, message, "write it as a list"))
    return _Reader(text).chain()


class _FaultError(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def chain(self) -> Chain:
        calls: list[Call] = []
        try:
            while self._skip_spaces():
                call, finished = self._call()
                if not finished:
                    return Chain(tuple(calls), unfinished=call)
                if len(calls) == MAX_CALLS:
                    message = f"a chain has at most {MAX_CALLS:,} transforms"
                    return Chain(tuple(calls), Fault(call.offset, message, "shorten it"))
                calls.append(call)
        except _FaultError as error:
            return Chain(tuple(calls), error.fault)
        return Chain(tuple(calls))

    def _call(self) -> tuple[Call, bool]:
        start = self._at
        name = self._match(_NAME, "a transform's name")
        arguments: list[Argument] = []
        spaced = self._skip_to_parenthesis()
        finished = not self._take("(")
        while not finished and self._at < len(self._text):
            if self._take(")"):
                finished = True
            elif (argument := self._argument()) is not None:
                arguments.append(argument)
        return Call(name, tuple(arguments), start, spaced), finished

    def _argument(self) -> Argument | None:
        self._take(",")
        self._skip_spaces()
        offset = self._at
        name = self._match(_NAME, "a parameter's name")
        if not self._take("="):
            expected = f"'=' after the parameter {name}"
            raise self._fault(expected)
        if self._at == len(self._text):
            return None
        value_offset = self._at
        value = self._value()
        self._take('"')
        self._take("'")
        return Argument(name, value, offset, value_offset)

    def _value(self) -> str:
        if not self._text.startswith('"', self._at):
            return self._match(_BARE_VALUE, "a parameter's value")
        quoted = _QUOTED_VALUE.match(self._text, self._at)
        if quoted is None:
            raise _FaultError(Fault(self._at, "a quoted value has no closing '\"'", "add it"))
        self._at = quoted.end()
        return quoted[1]

    def _match(self, pattern: re.Pattern[str], expected: str) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise self._fault(expected)
        self._at = match.end()
        return match[0]

    def _take(self, literal: str) -> bool:
        found = self._text.startswith(literal, self._at)
        self._at += found
        return found

    def _skip_spaces(self) -> bool:
        """Move to the next character that is not white space; whether there is one."""
        match = _SPACES.match(self._text, self._at)
        self._at = match.end() if match is not None else self._at
        return self._at < len(self._text)

    def _skip_to_parenthesis(self) -> bool:
        """Move over white space to a ``(``; whether there was such white space."""
        match = _SPACES.match(self._text, self._at)
        after = match.end() if match is not None else self._at
        if after == self._at or not self._text.startswith("(", after):
            return False
        self._at = after
        return True

    def _fault(self, expected: str) -> _FaultError:
        rest = self._text[self._at :]
        found = show(rest, 20) if rest else "the end"
        return _FaultError(Fault(self._at, f"expected {expected}, found {found}", self._hint()))

    def _hint(self) -> str:
        before, after = self._text[: self._at], self._text[self._at : self._at + 1]
        if after == "\\":
            return "remove the backslash: inside quotes it does not continue a line"
        if after == ")" and before[-1:].isspace():
            return "remove the white space before ')'"
        if after == ")" and before.endswith(","):
            return "remove the comma before ')'"
        if after == "," and "(" not in before.rpartition(")")[2]:
            return "separate transforms by spaces"
        if after == ",":
            return "write one comma, directly after the value before it"
        return 'put a value with other characters in double quotes: shape="1,8,8,1"'
