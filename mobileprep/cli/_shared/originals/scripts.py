"""Command lines of existing scripts, in the form that argparse takes.

The original tools read their flags with gflags, absl or TensorFlow's own parser, and scripts call
them through Bazel. What those take and argparse does not is turned into what it does: a lone ``--``
before the flags, flags with a single dash, ``--noflag`` for ``--flag=false``, and the flags for
logging, which choose nothing here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Final

_FLAG: Final = re.compile(r"--?([A-Za-z][\w-]*)(=.*)?\Z", re.DOTALL)
_NEGATION: Final = "no"

# Those of glog and absl, in C++ and Python.
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
    """A script's arguments as argparse takes them."""
    plain: list[str] = []
    left = list(reversed(arguments))
    while left:
        word = left.pop()
        found = _FLAG.match(word)
        if found is None:
            plain += [word] if word != "--" else []
            continue
        name, value = found[1], found[2] or ""
        own = _own_flag(word, name, flags)
        if own is not None:
            plain.append(f"{own}{value}")
            if left and not value and _takes_next(flags[own]):
                plain.append(left.pop())  # a value, whatever it looks like
        elif _is_negated(name, flags):
            plain.append(f"--{name.removeprefix(_NEGATION)}=false")
        elif _is_logging_value(name):
            left = left if value else left[:-1]
        elif not _is_logging_switch(name):
            plain.append(word)
    return plain


def _own_flag(word: str, name: str, flags: Mapping[str, argparse.Action]) -> str | None:
    """How the verb spells a flag of its own, which may stand there with a single dash."""
    given = word.partition("=")[0]
    return next((f for f in (given, f"--{name}") if f in flags), None)


def _takes_next(action: argparse.Action) -> bool:
    return action.nargs is None or action.nargs == 1


def _is_negated(name: str, flags: Mapping[str, argparse.Action]) -> bool:
    action = flags.get(f"--{name.removeprefix(_NEGATION)}")
    return name.startswith(_NEGATION) and action is not None and action.nargs == "?"


def _is_logging_value(name: str) -> bool:
    return name.replace("-", "_") in _LOGGING_VALUES


def _is_logging_switch(name: str) -> bool:
    plain = name.replace("-", "_")
    return bool({plain, plain.removeprefix(_NEGATION)} & _LOGGING_SWITCHES)
