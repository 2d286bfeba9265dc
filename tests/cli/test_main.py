"""Help, errors, exit codes, and startup of the command line."""

from __future__ import annotations

import errno
import io
import os
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mobileprep import __version__
from mobileprep.cli.main import find_verb, let_blas_sleep, main, parser_of, verb_names
from mobileprep.cli.verb import print_help
from mobileprep.errors import CorruptFileError
from tests.cli.conftest import Run


def test_help_lists_every_verb(run: Run) -> None:
    result = run("--help")
    assert result.code == 0
    for name in verb_names():
        assert f"\n  {name} " in result.out


@pytest.mark.parametrize("name", verb_names())
def test_every_verb_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"mobileprep {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", verb_names())
def test_examples_in_the_help_are_valid(name: str) -> None:
    verb = find_verb(name)
    assert verb.examples
    for example in verb.examples:
        program, own_name, *arguments = shlex.split(example.partition(" > ")[0])
        assert (program, own_name) == ("mobileprep", name)
        assert parser_of(verb).parse_known(arguments)[1] == []


@pytest.mark.parametrize("columns", ["80", "140"])
@pytest.mark.parametrize("name", verb_names())
def test_help_fits_its_width_and_shows_no_empty_defaults(
    name: str, columns: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = run("help", name).out
    options = text[: text.index("examples:")].splitlines()
    assert max(map(len, options)) <= int(columns)
    assert "(default" not in text
    assert not re.search(r"\[default: (None|False|\[\]|)\]", text)


def test_headings_are_bold_only_on_terminals_with_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def printed(stream: io.StringIO) -> str:
        print_help("usage: x\n\noptions:\n  -h\n", stream)
        return stream.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1moptions:\x1b[0m" in printed(Terminal())
    assert "\x1b" not in printed(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in printed(Terminal())


def test_version_is_printed(run: Run) -> None:
    assert run("--version").out == f"mobileprep {__version__}\n"


def test_misspelled_verb_gets_a_suggestion(run: Run) -> None:
    result = run("transfrom")
    assert result.code == 2
    assert "unknown verb 'transfrom'" in result.err
    assert "did you mean 'transform'?" in result.err


@pytest.mark.parametrize("arguments", [["help"], ["help", "help"], ["help", "--help"]])
def test_help_without_a_verb_is_the_overview(arguments: list[str], run: Run) -> None:
    result = run(*arguments)
    assert (result.code, result.out) == (0, run("--help").out)


@pytest.mark.parametrize("name", verb_names())
def test_help_verb_equals_the_help_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", name]) == 0
    out = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert out == capsys.readouterr().out


def test_help_of_an_unknown_verb_gets_a_suggestion(run: Run) -> None:
    result = run("help", "biuld")
    assert (result.code, "did you mean 'build'?" in result.err) == (2, True)
    assert run("hlep").err.endswith("did you mean 'help'?\n")
    result = run("help", "plan", "build")
    assert (result.code, "help takes one verb: 2 given" in result.err) == (2, True)


def test_package_runs_as_a_module(tmp_path: Path) -> None:
    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mobileprep", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ask("--version").stdout == f"mobileprep {__version__}\n"
    assert "usage: mobileprep plan " in ask("plan", "--help").stdout
    result = ask("plan", "none.yaml")
    assert (result.returncode, "none.yaml" in result.stderr) == (4, True)


def test_misspelled_flag_gets_a_suggestion(run: Run) -> None:
    result = run("transform", "--in_graph=a", "--out_graph=b", "--outptus=c")
    assert result.code == 2
    assert "did you mean --outputs?" in result.err


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("transform", "--in_grpah=a", "--out_graph=b"), "did you mean --in_graph?"),
        (("transform_graph", "-in_grpah=a", "-out_graph=b"), "did you mean --in_graph?"),
        (("transform", "--in_graph=a", "--out-grahp", "b"), "did you mean --out-graph?"),
        (("dot", "--grpah=x", "--dot_output=y"), "did you mean --graph?"),
    ],
)  # fmt: skip
def test_misspelled_required_flag_gets_a_suggestion(
    run: Run, arguments: tuple[str, ...], near: str
) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert "the following arguments are required: " in result.err
    assert near in result.err


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_blank_argument_is_refused(run: Run, blank: str) -> None:
    result = run("transform", "--in_graph=a", "--out_graph=b", blank)
    assert result.code == 2
    assert "unrecognized arguments: " in result.err


@pytest.mark.parametrize(
    "arguments",
    [("plan", ".", "--out=--"), ("plan", ".", "--set=--"), ("memmap", "--in_graph=--"),
     ("compare", "a", "b", "--rows=--"), ("doctor", "--library=--"), ("build", ".", "--html=--")],
)  # fmt: skip
def test_two_dashes_are_not_a_value(arguments: tuple[str, ...], run: Run) -> None:
    result = run(*arguments)
    assert result.code == 2, result.err
    assert "--" in result.err


def test_missing_flag_is_named(run: Run) -> None:
    result = run("transform", "--in_graph=a")
    assert result.code == 2
    assert "out_graph" in result.err


def test_interrupt_during_class_creation_is_reported(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    class Field:
        def __set_name__(self, _owner: type, _name: str) -> None:
            raise KeyboardInterrupt

    def interrupt(_arguments: object) -> int:
        type("Made", (), {"field": Field()})
        return 0

    monkeypatch.setattr("mobileprep.cli.main._dispatch", interrupt)
    result = run()
    assert result.code == 130
    assert result.err == "error: interrupted\n"


def test_interrupt_has_its_own_exit_code(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    def interrupt(_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("mobileprep.cli.main._dispatch", interrupt)
    assert run("build", "x").code == 130


def test_interrupt_by_openblas_is_a_thread_limit_error(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    # OpenBLAS interrupts its own process in this case.
    def interrupt(_arguments: object) -> int:
        raise KeyboardInterrupt

    def refuse(_thread: threading.Thread) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    monkeypatch.setattr("mobileprep.cli.main._dispatch", interrupt)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    result = run("build", "x")
    assert (result.code, "starts no more threads" in result.err) == (9, True)


def test_cyclic_exception_cause_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: object) -> int:
        error = ValueError("again")
        try:
            raise error from error
        except ValueError:
            message = "oops"
            raise ZeroDivisionError(message) from error

    monkeypatch.setattr("mobileprep.cli.main._dispatch", fail)
    assert main([]) == 70
    assert "oops" in capsys.readouterr().err


def test_bug_is_reported_with_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: object) -> int:
        message = "oops"
        raise ZeroDivisionError(message)

    monkeypatch.setattr("mobileprep.cli.main._dispatch", fail)
    assert main([]) == 70
    err = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in err
    assert "bug in mobileprep" in err


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (MemoryError(), "gives no more memory", "limit on memory"),
        (MemoryError("Unable to allocate 8 TiB"), "memory: Unable to allocate 8 TiB", "-j"),
        (ImportError("a.so: failed to map segment from shared object"), "memory", "ulimit -v"),
        (RuntimeError("can't start new thread"), "starts no more threads", "ulimit -u"),
        (OSError(errno.EMFILE, "Too many open files", "a.pb"), "a.pb: cannot be read", "ulimit -n"),
    ],
)
def test_exhausted_resources_are_not_bugs(
    monkeypatch: pytest.MonkeyPatch, run: Run, error: Exception, message: str, hint: str
) -> None:
    def fail(_arguments: object) -> int:
        raise error

    monkeypatch.setattr("mobileprep.cli.main._dispatch", fail)
    result = run("build")
    assert result.code in {4, 9}
    assert message in result.err
    assert hint in result.err
    assert "bug" not in result.err


def test_closed_pipe_is_not_an_error() -> None:
    code = "import sys; from mobileprep.cli.main import entry; entry()"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, "--help"],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "before",
    [
        "import atexit; atexit.register(print, 'seen')",
        "import threading; threading.Timer(0.2, print, ['seen']).start()",
    ],
)
def test_exit_handlers_and_threads_run(before: str) -> None:
    code = f"{before}; from mobileprep.cli.main import entry; entry()"
    command = [sys.executable, "-c", code, "no-such-verb"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "seen\n")
    assert "unknown verb 'no-such-verb'" in done.stderr


def test_error_prints_message_and_hint(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    def fail(_arguments: object) -> int:
        raise CorruptFileError(*("is empty", "export it again", "a.pb"))

    monkeypatch.setattr("mobileprep.cli.main._dispatch", fail)
    result = run("x")
    assert result.code == 4
    assert result.err == "error: a.pb: is empty [MP400]\nhelp: export it again\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["help", "build"], ["validate", "none.yaml"], ["plan", "none.yaml"]]
)
def test_startup_does_not_import_numpy_or_doit(arguments: list[str]) -> None:
    code = (
        "import sys; from mobileprep.cli.main import main; main(sys.argv[1:]);"
        "sys.exit(bool({'numpy', 'doit', 'google.protobuf'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, check=False
    )
    assert done.returncode == 0


def test_verbs_without_recipes_do_not_import_yaml(tmp_path: Path) -> None:
    code = (
        "import sys; from mobileprep.cli.main import main; main(sys.argv[1:]);"
        "sys.exit('yaml' in sys.modules)"
    )
    for arguments in (["--version"], ["summarize", str(tmp_path / "none.pb")]):
        command = [sys.executable, "-c", code, *arguments]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(("value", "expected"), [(None, "4"), ("20", "20")])
def test_openblas_timeout_default_can_be_overridden(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: str
) -> None:
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    if value is not None:
        monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", value)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    let_blas_sleep()
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == expected
