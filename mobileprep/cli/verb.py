"""The registry of verbs, and flags in the style of the original tools."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NoReturn

from msgspec import Struct

from mobileprep.core.declare import Declared, declared
from mobileprep.core.loading import Registry
from mobileprep.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

# Values that gflags, absl, and TensorFlow's own parser accept.
_TRUE = frozenset({"true", "t", "1", "yes", "y"})


_FALSE = frozenset({"false", "f", "0", "no", "n"})


Arguments = Callable[[argparse.ArgumentParser], None]
Run = Callable[[argparse.Namespace], int]


class Group(Enum):
    """The groups of verbs, in the order of the help."""

    BUILD = "Build"
    INSPECT = "Inspect"
    TENSORFLOW = "TensorFlow tools"
    LITERT = "LiteRT"
    MAINTENANCE = "Maintenance"


class Verb(Struct, frozen=True):
    """One verb of the command line.

    ``run`` returns the exit code; errors are raised and become messages in ``main``.
    """

    name: str
    group: Group
    summary: str
    arguments: Arguments
    examples: tuple[str, ...]
    run: Run


verbs: Registry[Verb] = Registry("verb")


def verb(
    name: str, group: Group, summary: str, arguments: Arguments, *examples: str
) -> Callable[[Run], Run]:
    """Return a decorator that registers a function as a verb.

    Modules of verbs must import numpy inside functions only, so that start-up stays fast.
    """

    def register(run: Run) -> Run:
        verbs.register(name)(Verb(name, group, summary, arguments, examples, run))
        return run

    return register


class Parser(argparse.ArgumentParser):
    """An argument parser that raises ``UsageError`` and prints headings in bold on terminals."""

    _arguments: Sequence[str] = ()

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help of the verb."""
        print_help(self.format_help(), file)

    def plain(self, arguments: Sequence[str]) -> list[str]:
        """Convert arguments for an original tool to arguments of this parser."""
        return plain_arguments(arguments, self._option_string_actions)

    def parse_known(self, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Return the parsed arguments and the unknown words."""
        self._arguments = arguments
        for word in takewhile(lambda w: w != "--", arguments):
            name, _, value = word.partition("=")
            if name.startswith("-") and value == "--":  # argparse would return an empty list
                self.error(f"argument {name}: expected a value, found '--'")
        return self.parse_known_args(arguments)

    def error(self, message: str) -> NoReturn:
        """Raise the message of argparse as a UsageError that suggests the closest flag."""
        hint = f"see '{self.prog} --help'"
        if message.startswith("unrecognized arguments: "):
            unknown = message.split(": ", 1)[1].partition(" ")[0].partition("=")[0]
            near = did_you_mean(unknown, self._option_string_actions)
            hint = f"did you mean {near[0]}? {hint}" if near else hint
        if message.startswith("the following arguments are required: "):
            hint = f"{self._misspelt()}{hint}"
        raise UsageError(message, hint, self.prog)

    def _misspelt(self) -> str:
        """Return a hint if an unknown flag may be the missing one, misspelled."""
        for word in self._arguments:
            name = word.partition("=")[0]
            if not name.startswith("-") or name in self._option_string_actions:
                continue
            near = did_you_mean(f"--{name.lstrip('-')}", self._option_string_actions)
            if near:
                return f"{name!r} is not an option; did you mean {near[0]}? "
        return ""


def print_help(text: str, file: SupportsWrite[str] | None = None) -> None:
    """Print a help text, with bold headings if the stream is a terminal with colors."""
    stream = sys.stdout if file is None else file
    is_terminal = getattr(stream, "isatty", bool)()
    if is_terminal and not os.environ.get("NO_COLOR"):
        text = re.sub(r"^(\w[\w ]*:)", "\x1b[1m\\1\x1b[0m", text, flags=re.MULTILINE)
    stream.write(text)


def flag(parser: argparse.ArgumentParser, name: str, *aliases: str, **options: Any) -> None:  # noqa: ANN401
    """Add a flag and its aliases, spelled with underscores and with dashes; see argparse."""
    spellings = [spelling for one in (name, *aliases) for spelling in _spellings(one)]
    parser.add_argument(*spellings, dest=name, **options)


def bool_flag(
    parser: argparse.ArgumentParser, name: str, *, default: bool | None, help_line: str
) -> None:
    """Add a flag for ``--name``, ``--name=true``, and ``--name=false``, as in the originals."""
    parser.add_argument(
        *_spellings(name),
        dest=name,
        nargs="?",
        const=True,
        default=default,
        type=_truth,
        metavar="true|false",
        help=help_line,
    )


def option_flags(
    parser: argparse.ArgumentParser, owner: type, aliases: Mapping[str, str] | None = None
) -> None:
    """Add a flag for each option of a dataclass."""
    for option in declared(owner):
        if option.kind is bool:
            bool_flag(parser, option.name, default=option.default, help_line=_help(option))
        else:
            also = (aliases or {}).get(option.name)
            flag(parser, option.name, *([also] if also else []), **_flag_arguments(option))


def option_values(args: argparse.Namespace, owner: type) -> dict[str, Any]:
    """Return the values of the flags of a class's options."""
    return {option.name: getattr(args, option.name) for option in declared(owner)}


def whole_number(text: str) -> int:
    """Parse a non-negative integer, for ``type=`` of a flag."""
    if not text.isascii() or not text.isdigit():
        message = f"{text!r} is not a non-negative integer"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def tolerance(text: str) -> float:
    """Parse a non-negative difference, for ``type=`` of a flag."""
    value = float(text)
    if not 0 <= value < math.inf:
        message = f"{text} is not a difference; expected a non-negative number"
        raise argparse.ArgumentTypeError(message)
    return value


def file_name(text: str) -> str:
    """Check the path of a model, for ``type=`` of a flag.

    An empty path would mean the current directory.
    """
    if not text:
        message = "an empty name is not a file; '.' is the current directory"
        raise argparse.ArgumentTypeError(message)
    return text


def comma_list(text: str) -> tuple[str, ...]:
    """Split ``a,b`` into a tuple, without spaces around names."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _flag_arguments(option: Declared) -> dict[str, Any]:
    if option.repeated:
        listed = ",".join(option.default)
        return {"default": listed, "type": comma_list, "metavar": "NAMES", "help": _help(option)}
    shown = {"choices": option.choices} if option.choices else {"metavar": "NAME"}
    return {"default": option.default, "help": _help(option), **shown}


def _help(option: Declared) -> str:
    text = option.option.sentence.removesuffix(".").replace("`", "").replace("%", "%%")
    return f"{text}{' (a,b)' if option.repeated else ''}"


def _spellings(name: str) -> list[str]:
    return list(dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"]))


def _truth(text: str) -> bool:
    word = text.lower()
    if word not in _TRUE | _FALSE:
        message = f"{text!r} is neither true nor false"
        raise argparse.ArgumentTypeError(message)
    return word in _TRUE


_FLAG: Final = re.compile(r"--?([A-Za-z][\w-]*)(=.*)?\Z", re.DOTALL)


_NEGATION: Final = "no"


# Flags of glog and absl, in C++ and Python.
_LOGGING_SWITCHES: Final = frozenset(
    [
        "alsologtostderr",
        "colorlogtostderr",
        "colorlogtostdout",
        "drop_log_memory",
        "log_prefix",
        "log_utc_time",
        "log_year_in_prefix",
        "logo",
        "logtostderr",
        "logtostdout",
        "prefix_include_utc",
        "showprefixforinfo",
        "stop_logging_if_full_disk",
        "symbolize_stacktrace",
        "timestamp_in_logfile_name",
    ]
)


_LOGGING_VALUES: Final = frozenset(
    [
        "alsologtoemail",
        "log_backtrace_at",
        "log_dir",
        "log_link",
        "logbuflevel",
        "logbufsecs",
        "logemaillevel",
        "logfile_mode",
        "logger_levels",
        "logmailer",
        "max_log_size",
        "minloglevel",
        "stderrthreshold",
        "undefok",
        "v",
        "verbosity",
        "vmodule",
    ]
)


def plain_arguments(arguments: Sequence[str], flags: Mapping[str, argparse.Action]) -> list[str]:
    """Convert gflags-style arguments to argparse's style, without logging flags."""
    plain: list[str] = []
    remaining = list(reversed(arguments))
    while remaining:
        word = remaining.pop()
        match = _FLAG.match(word)
        if match is None:
            plain += [word] if word != "--" else []
            continue
        name, value = match[1], match[2] or ""
        own = _own_flag(word, name, flags)
        if own is not None:
            plain.append(f"{own}{value}")
            if remaining and not value and flags[own].nargs in (None, 1):
                plain.append(remaining.pop())  # a value, even if it looks like a flag
        elif _is_negated(name, flags):
            plain.append(f"--{name.removeprefix(_NEGATION)}=false")
        elif name.replace("-", "_") in _LOGGING_VALUES:
            remaining = remaining if value else remaining[:-1]
        elif not _is_logging_switch(name):
            plain.append(word)
    return plain


def _own_flag(word: str, name: str, flags: Mapping[str, argparse.Action]) -> str | None:
    """Return the verb's spelling of a flag that may have a single dash."""
    spelling = word.partition("=")[0]
    return next((f for f in (spelling, f"--{name}") if f in flags), None)


def _is_negated(name: str, flags: Mapping[str, argparse.Action]) -> bool:
    action = flags.get(f"--{name.removeprefix(_NEGATION)}")
    return name.startswith(_NEGATION) and action is not None and action.nargs == "?"


def _is_logging_switch(name: str) -> bool:
    plain = name.replace("-", "_")
    return bool({plain, plain.removeprefix(_NEGATION)} & _LOGGING_SWITCHES)
