"""The command line: finds the verb, runs it, and turns errors into messages and exit codes."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import importlib
import io
import os
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from mobileprep import __version__
from mobileprep.cli._shared.arguments import limits_of
from mobileprep.cli._shared.diagnostics import (
    Diagnostic,
    collecting,
    github_lines,
    report,
    requested_format,
    sarif_text,
)
from mobileprep.cli._shared.failures import (
    NO_OUTPUT,
    error_of_limits,
    error_of_system,
    limit_behind_interrupt,
    print_failure,
    tell_error,
    unwritable_output,
    whole_or_nothing,
)
from mobileprep.cli._shared.originals import DROP_INS, default_flags, verb_of
from mobileprep.cli._shared.telling import slowest, telling, telling_arguments
from mobileprep.cli.verb import Group, Parser, Verb, print_help, verbs
from mobileprep.core.loading import module_names
from mobileprep.errors import InternalError, MobileprepError, UsageError, nearest_hint

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_NOT_VERBS = frozenset({"main", "verb"})
# These verbs print their slowest stages themselves.
_TELL_STAGES = frozenset({"build", "watch"})
_INTERRUPTED = 130
_OUR_BUG = 70
# Allocations between two runs of the cyclic garbage collector; Python's default is 700.
_SELDOM = 1_000_000

_DESCRIPTION = """\
Prepare trained TensorFlow 1-style models for mobile and embedded apps: freeze, transform,
quantize, check, and package them in one command."""


def entry() -> None:
    """Run the console script."""
    collect_seldom()
    let_blas_sleep()
    open_closed_streams()
    let_messages_get_lost()
    code = main(sys.argv[1:])
    if not _is_awaited():
        _leave(code)
    sys.exit(code)


def _is_awaited() -> bool:
    """Return whether Python must shut down normally, for foreign threads or a profiler."""
    if sys.getprofile() is not None or sys.gettrace() is not None:
        return True
    others = (t for t in threading.enumerate() if t is not threading.main_thread())
    # Our pools keep idle threads; verbs wait for the work of these threads.
    return any(not (t.daemon or t.name.startswith("mobileprep-")) for t in others)


def _leave(code: int) -> NoReturn:
    """Exit without freeing objects.

    Python would collect garbage several times and free each object, which takes a tenth of the
    time of a small build. Functions that are registered with ``atexit`` run.
    """
    atexit._run_exitfuncs()  # as Python does; there is no public function
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed or None
            stream.flush()
    os._exit(code)


def collect_seldom() -> None:
    """Run the garbage collector less often than by default.

    Graphs consist of millions of objects without cycles. Scanning them each time their number grows
    by a quarter takes a third of the time of a transform of 100,000 nodes.
    """
    gc.set_threshold(_SELDOM)


def let_blas_sleep() -> None:
    """Let idle threads of OpenBLAS sleep instead of spinning.

    By default, each thread spins for 25 ms after numpy is imported, on a processor that stages
    could use: a tenth of the time of a small build. For products that are large enough for several
    threads, waking them takes negligible time. A value that the user has set is kept.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # the minimum: 2^4 cycles


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    try:
        code = _answer(list(arguments))
        if sys.stdout is not None:
            sys.stdout.flush()  # a closed pipe can still be handled here
        return code
    except BrokenPipeError:
        # The reader closed the pipe, as `head` does.
        _drop_output()
        return 0
    except OSError as error:
        _drop_output()
        return tell_error(unwritable_output(error), as_json=False)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help formatter that adds defaults, except empty ones and those that the help states."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text, default = action.help, action.default
        if text is None or "[default: " in text or default is argparse.SUPPRESS:
            return text
        if default is True:
            return f"{text} [default: true]"
        is_number = isinstance(default, int | float) and not isinstance(default, bool)
        return f"{text} [default: %(default)s]" if is_number or default else text

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        # Show one spelling of names with dashes or underscores, and the value once.
        names = {name.replace("_", "-"): name for name in reversed(action.option_strings)}
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(reversed(names.values()))} {value}"


def _drop_output() -> None:
    """Discard buffered output, so that the exit of the process cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _answer(arguments: list[str]) -> int:
    """Run one command and print its errors in the requested format; return the exit code."""
    form = requested_format(arguments)
    if form in ("text", "json"):
        return _outcome(arguments, as_json=form == "json")
    with collecting() as diagnostics, contextlib.redirect_stdout(io.StringIO()):
        code = _outcome(arguments, as_json=False)
    if form == "sarif":
        print(sarif_text(diagnostics))
    else:
        for line in github_lines(diagnostics):
            print(line)
    return code


def _outcome(arguments: list[str], *, as_json: bool) -> int:
    """Run one command and print its errors; return the exit code."""
    try:
        with whole_or_nothing() if as_json else contextlib.nullcontext():
            return _dispatch(arguments)
    except MobileprepError as error:
        return tell_error(error, as_json=as_json)
    except KeyboardInterrupt:
        return _interrupted(as_json=as_json)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None and error.errno in NO_OUTPUT:
            raise
        if _folder_is_gone():
            gone = UsageError("the working folder is gone", "change to an existing directory", "./")
            return tell_error(gone, as_json=as_json)
        failure = error_of_system(error)
        if failure is None:
            return _own_up(error, as_json=as_json)
        return tell_error(failure, as_json=as_json)
    except Exception as error:  # noqa: BLE001 - reports bugs
        if _is_interrupt(error):
            return _interrupted(as_json=as_json)
        limit = error_of_limits(error)
        return (
            _own_up(error, as_json=as_json) if limit is None else tell_error(limit, as_json=as_json)
        )


def _folder_is_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() adds nothing
    except OSError:
        return True
    return False


def _own_up(error: Exception, *, as_json: bool) -> int:
    import traceback  # slow to import, and only bugs need it

    traceback.print_exc()
    from mobileprep.error_codes import INTERNAL

    message = "this is a bug in mobileprep; please report it"
    report([Diagnostic("error", INTERNAL, f"{message}: {type(error).__name__}: {error}")])
    print(f"error: {message} [{INTERNAL}]", file=sys.stderr)
    if as_json:
        print_failure("bug", f"{type(error).__name__}: {error}", _OUR_BUG, code=INTERNAL)
    return _OUR_BUG


def _interrupted(*, as_json: bool) -> int:
    limit = limit_behind_interrupt()
    if limit is not None:
        return tell_error(limit, as_json=as_json)
    print("error: interrupted", file=sys.stderr)
    if as_json:
        print_failure("interrupted", "interrupted", _INTERRUPTED, code="")
    return _INTERRUPTED


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether an interrupt caused an error; Python chains them when it creates a class."""
    seen: set[int] = set()  # an exception raised from itself is its own cause
    while error is not None and not isinstance(error, KeyboardInterrupt) and id(error) not in seen:
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt)


def verb_names() -> list[str]:
    """Return the names of all verbs, without importing their modules."""
    names = (n for n in module_names("mobileprep.cli") if n not in _NOT_VERBS)
    return [n.replace("_", "-") for n in names]


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print_help(_overview())
        return 0
    if arguments[0] == "help":
        return _help(arguments[1:])
    if arguments[0] == "--version":
        print(f"mobileprep {__version__}")
        return 0
    verb = find_verb(arguments[0])
    parser = parser_of(verb)
    verb_arguments = arguments[1:]
    if verb.name in DROP_INS:
        verb_arguments = parser.plain([*default_flags(arguments[0]), *verb_arguments])
    args, rest = parser.parse_known(verb_arguments)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    with telling(args, arguments):
        return _run_verb(verb, args)


def _run_verb(verb: Verb, args: argparse.Namespace) -> int:
    """Run a verb, and show its activities if they take long or with ``--verbose``."""
    from mobileprep.cli._shared.terminal.waiting import Activities, waiting

    activities = Activities()
    with waiting(activities):
        code = _run(verb, args)
    stages = slowest(activities.seconds()) if args.verbose and verb.name not in _TELL_STAGES else ""
    if stages:
        print(f"slowest: {stages}", file=sys.stderr)
    return code


def _run(verb: Verb, args: argparse.Namespace) -> int:
    """Run a verb within its limits, and add the files of the command line to its errors."""
    try:
        with limits_of(args):
            return verb.run(args)
    except MobileprepError as error:
        error.subject = subject_of(args)
        raise


def _help(names: list[str]) -> int:
    """Run ``mobileprep help`` or ``mobileprep help VERB``."""
    if not names or names[0] in ("-h", "--help", "help"):
        print_help(_overview())
        return 0
    if len(names) > 1:
        message = f"help takes one verb: {len(names)} given"
        raise UsageError(message, f"see 'mobileprep help {names[0]}'")
    parser_of(find_verb(names[0])).print_help()
    return 0


def find_verb(name: str) -> Verb:
    """Import and return a verb by its name or the name of an original tool."""
    names = verb_names()
    name = verb_of(name)
    if name not in names:
        message = f"unknown verb {name!r}"
        raise UsageError(message, nearest_hint(name, [*names, "help"]) or "see 'mobileprep help'")
    module = f"mobileprep.cli.{name.replace('-', '_')}"
    importlib.import_module(module)
    verb = verbs.get(name)
    if verb is None:
        message = f"the module {module} registers no verb {name!r}"
        raise InternalError(message)
    return verb


def parser_of(verb: Verb) -> Parser:
    parser = Parser(
        prog=f"mobileprep {verb.name}",
        description=f"{verb.summary}.",
        epilog="\n".join(["examples:", *(f"  {line}" for line in verb.examples)]),
        allow_abbrev=False,
        formatter_class=_HelpFormatter,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help="Show this help")
    verb.arguments(parser)
    telling_arguments(parser, letters=verb.name not in DROP_INS)
    return parser


def _overview() -> str:
    entries = [find_verb(name) for name in verb_names()]
    width = max(len(verb.name) for verb in entries)
    lines = ["usage: mobileprep VERB [arguments]", "", _DESCRIPTION]
    for group in Group:
        lines += ["", f"{group.value}:"]
        lines += [f"  {v.name:{width}}  {v.summary}" for v in entries if v.group is group]
    return "\n".join([*lines, "", "Run 'mobileprep help VERB' for the arguments of a verb.", ""])


# Flags and arguments that name inputs, the main input first.
_SUBJECTS: Final = (
    *("in_graph", "graph", "graphs", "input_saved_model_dir", "input_meta_graph", "input_graph"),
    *("model", "a", "b", "recipes", "recipe", "outs"),
)
_MOST: Final = 3


def subject_of(args: argparse.Namespace) -> str:
    """Return the input files that the command line names; empty if there are none."""
    named: list[Any] = []
    for name in _SUBJECTS:
        value = getattr(args, name, None)
        named += value if isinstance(value, list | tuple) else [value]
    files = [str(x) for x in named if x]
    return ", ".join(files[:_MOST]) + (", ..." if len(files) > _MOST else "")


class _Messages(io.FileIO):
    """A standard error stream that discards messages if they cannot be written.

    A closed pipe or a full disk must not end a build.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)


def open_closed_streams() -> None:
    """Replace closed standard streams, which are None in Python.

    Otherwise the first opened files would get their descriptors, and output of a library could be
    written to a model. Writing to a closed standard output remains an error; messages are
    discarded.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        if not _is_open(descriptor):
            os.open(os.devnull, flags)  # gets the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until exit
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def let_messages_get_lost() -> None:
    """Continue if the standard error stream can no longer be written."""
    stream = sys.stderr
    if not isinstance(stream, io.TextIOWrapper):
        return
    stream.flush()
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Messages(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
    )


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
