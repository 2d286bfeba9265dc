"""Range files: ranges of tensors in a YAML file for review."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from msgspec import Struct, field

from mobileprep.core.files import unreadable
from mobileprep.core.paths import opened
from mobileprep.errors import CorruptFileError

_HEAD: Final = (
    "# The values that tensors take. 'mobileprep calibrate' writes it; review and check it in.\n"
)
_HINT: Final = "remove it and run 'mobileprep calibrate' to write it again"
_LARGEST_FILE: Final = 64 << 20
_MOST_TENSORS: Final = 1_000_000
_LONGEST: Final = 20_000
_LONGEST_KEY: Final = 1_000
_DIGITS: Final = 15  # Digits of a count.
_FIELDS: Final = ("min", "max", "min16", "max16", "graph")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*\Z")
# Characters that YAML would not accept unchanged in double quotes.
_ESCAPED: Final = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TensorRange(Struct, frozen=True):
    """The range of a tensor's values.

    Args:
        low: smallest value, as defined by the calibration method.
        high: largest value.
        graph: digest of the subgraph that computes the tensor; empty if unknown.
        sixteen: range for 16-bit integers; None if it is the same.
    """

    low: float
    high: float
    graph: str = ""
    sixteen: tuple[float, float] | None = None

    def ends(self, *, is_sixteen: bool) -> tuple[float, float]:
        """Return the range for 16-bit or 8-bit integers."""
        return self.sixteen if is_sixteen and self.sixteen is not None else (self.low, self.high)


class RangeFile(Struct, frozen=True):
    """Ranges, and how they were measured.

    Args:
        tensors: ranges by tensor, ``node`` or ``node:1``.
        method: calibration method.
        samples: number of samples.
        data: digest of the samples.
        unseen: tensors without a range, because no sample reached them.
    """

    tensors: Mapping[str, TensorRange] = field(default_factory=dict)
    method: str = ""
    samples: int = 0
    data: str = ""
    unseen: tuple[str, ...] = ()


def range_file_text(ranges: RangeFile) -> str:
    """Return the content of a range file, with a line for each tensor, sorted by name.

    Equal ranges have equal text. Bounds are float32 with enough digits to restore the same value.
    """
    lines = [_HEAD, "version: 1\n"]
    if ranges.method:
        lines.append(f"method: {_name(ranges.method)}\n")
    if ranges.samples:
        lines.append(f"samples: {ranges.samples}\n")
    if ranges.data:
        lines.append(f"data: {_name(ranges.data)}\n")
    lines.append("tensors:\n" if ranges.tensors else "tensors: {}\n")
    for tensor, bounds in sorted(ranges.tensors.items()):
        graph = f", graph: {_quoted(bounds.graph)}" if bounds.graph else ""
        ends = f"min: {number(bounds.low)}, max: {number(bounds.high)}"
        if bounds.sixteen is not None:
            low, high = map(number, bounds.sixteen)
            ends += f", min16: {low}, max16: {high}"
        lines.append(f"  {_key(tensor)}: {{{ends}{graph}}}\n")
    if ranges.unseen:
        lines.append("unseen:\n")
        lines += (f"  - {_name(tensor)}\n" for tensor in sorted(ranges.unseen))
    return "".join(lines)


def number(value: float) -> str:
    """Format a float32 so that YAML and Python read it back: ``0.1``, ``-6.0``, ``1.0e-05``."""
    text = str(np.float32(value))
    mantissa, e, exponent = text.partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}{e}{exponent}"


def read_range_file(path: Path) -> RangeFile:
    try:
        with opened(path) as stream:
            data = stream.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) > _LARGEST_FILE:
        message = f"a range file has at most {_LARGEST_FILE >> 20} MiB"
        raise CorruptFileError(message, _HINT, str(path))
    return ranges_from_bytes(data, str(path))


def ranges_from_bytes(data: bytes, where: str) -> RangeFile:
    """Parse the content of a range file.

    Raises:
        CorruptFileError: if the content is invalid.
    """
    try:
        return _Reader(data.decode(), where).read()
    except UnicodeDecodeError as error:
        message = f"byte {error.start} is not valid UTF-8"
        raise CorruptFileError(message, _HINT, where) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML's Python parser raises ValueError and OverflowError for some escapes.
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{mark.line + 1}" if mark is not None else where
        message = f"not YAML: {getattr(error, 'problem', None) or 'cannot be parsed'}"
        raise CorruptFileError(message, _HINT, place) from error


class _Reader:
    """A parser of YAML events, one by one, because files can be large."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._events: Iterator[yaml.Event] = yaml.parse(text, _LOADER)

    def read(self) -> RangeFile:
        tensors: dict[str, TensorRange] = {}
        header: dict[str, str] = {}
        unseen: tuple[str, ...] = ()
        next(self._events)  # Start of the stream.
        start = next(self._events)
        self._expect(start, yaml.DocumentStartEvent, "the file is empty")
        for key, event in self._mapping(next(self._events)):
            if key == "tensors":
                tensors = self._tensors(event)
            elif key == "unseen":
                unseen = tuple(self._texts(event))
            elif key in ("version", "method", "samples", "data"):
                header[key] = self._text(event)
            else:
                raise self._wrong(event, f"unknown key {_shown(key)}")
        next(self._events)  # End of the document.
        end = next(self._events)
        self._expect(end, yaml.StreamEndEvent, "a second YAML document starts here")
        if header.get("version") != "1":
            raise self._wrong(start, "its version is not 1")
        samples = header.get("samples", "0")
        if not (samples.isascii() and samples.isdigit() and len(samples) <= _DIGITS):
            raise self._wrong(start, f"'samples' is not a number: {_shown(samples)}")
        method, data = header.get("method", ""), header.get("data", "")
        return RangeFile(tensors, method, int(samples), data, unseen)

    def _tensors(self, event: yaml.Event) -> dict[str, TensorRange]:
        ranges: dict[str, TensorRange] = {}
        for tensor, start in self._mapping(event):
            if len(ranges) == _MOST_TENSORS:
                raise self._wrong(start, f"more than {_MOST_TENSORS:,} tensors")
            fields: dict[str, str] = {}
            for key, value in self._mapping(start):
                if key not in _FIELDS:
                    message = f"a range has no {_shown(key)}, but {', '.join(_FIELDS)}"
                    raise self._wrong(value, message)
                fields[key] = self._text(value)
            ranges[tensor] = self._range(tensor, fields, start)
        return ranges

    def _range(self, tensor: str, fields: Mapping[str, str], event: yaml.Event) -> TensorRange:
        low, high = self._ends(tensor, fields, event, "min", "max")
        sixteen = None
        if fields.keys() & {"min16", "max16"}:
            sixteen = self._ends(tensor, fields, event, "min16", "max16")
        return TensorRange(low, high, fields.get("graph", ""), sixteen)

    def _ends(
        self, tensor: str, fields: Mapping[str, str], event: yaml.Event, lower: str, upper: str
    ) -> tuple[float, float]:
        for key in (lower, upper):
            if key not in fields:
                raise self._wrong(event, f"{_shown(tensor)} has no {key}")
        low, high = (self._number(tensor, key, fields[key], event) for key in (lower, upper))
        if low > high:
            message = f"the range of {_shown(tensor)} is empty: "
            message += f"{lower} {low:g} is above {upper} {high:g}"
            raise self._wrong(event, message)
        return low, high

    def _number(self, tensor: str, key: str, text: str, event: yaml.Event) -> float:
        try:
            with np.errstate(over="ignore"):
                value = float(np.float32(float(text) if "_" not in text else math.nan))
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            message = f"the {key} of {_shown(tensor)} is not a finite float32: {_shown(text)}"
            raise self._wrong(event, message)
        return value

    def _mapping(self, start: yaml.Event) -> Iterator[tuple[str, yaml.Event]]:
        """Yield keys and the first events of their values."""
        self._expect(start, yaml.MappingStartEvent, "a mapping is expected here")
        self._plain(start)
        seen: set[str] = set()
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._text(event)
            if key in seen:
                raise self._wrong(event, f"{_shown(key)} is given twice")
            seen.add(key)
            yield key, next(self._events)

    def _texts(self, start: yaml.Event) -> Iterator[str]:
        self._expect(start, yaml.SequenceStartEvent, "a list is expected here")
        self._plain(start)
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            yield self._text(event)

    def _text(self, event: yaml.Event) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise self._wrong(event, "a text or a number is expected here")
        self._plain(event)
        text: str = event.value
        if len(text) > _LONGEST:
            raise self._wrong(event, f"a text has at most {_LONGEST:,} characters")
        return text

    def _plain(self, event: Any) -> None:  # noqa: ANN401 - PyYAML has no types
        if event.tag is not None or event.anchor is not None:
            raise self._wrong(event, "YAML tags and anchors are not read")

    def _expect(self, event: yaml.Event, kind: type[yaml.Event], message: str) -> None:
        if not isinstance(event, kind):
            raise self._wrong(event, message)

    def _wrong(self, event: Any, message: str) -> CorruptFileError:  # noqa: ANN401 - as above
        return CorruptFileError(message, _HINT, f"{self._where}:{event.start_mark.line + 1}")


def _key(text: str) -> str:
    """Format a key, with an explicit marker if it is too long for a simple key of YAML."""
    name = _name(text)
    return name if len(name) < _LONGEST_KEY else f"? {name}\n  "


def _name(text: str) -> str:
    """Format a string as a key or a value, in quotes if YAML could misread it."""
    if _PLAIN_NAME.match(text) and text.lower() not in _WORDS:
        return text
    return _quoted(text)


def _quoted(text: str) -> str:
    return _ESCAPED.sub(lambda c: f"\\U{ord(c.group()):08x}", json.dumps(text, ensure_ascii=False))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}...")


_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
