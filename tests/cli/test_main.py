"""The command line as a whole."""

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
    told = run("--help")
    assert told.code == 0
    for name in verb_names():
        assert f"\n  {name} " in told.out


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


def test_the_version_is_told(run: Run) -> None:
    assert run("--version").out == f"mobileprep {__version__}\n"


def test_a_misspelt_verb_gets_the_nearest(run: Run) -> None:
    told = run("transfrom")
    assert told.code == 2
    assert "unknown verb 'transfrom'" in told.err
    assert "did you mean 'transform'?" in told.err


@pytest.mark.parametrize("arguments", [["help"], ["help", "help"], ["help", "--help"]])
def test_help_alone_is_the_overview(arguments: list[str], run: Run) -> None:
    told = run(*arguments)
    assert (told.code, told.out) == (0, run("--help").out)


@pytest.mark.parametrize("name", verb_names())
def test_help_of_a_verb_is_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", name]) == 0
    told = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert told == capsys.readouterr().out


def test_help_of_no_verb_gets_the_nearest(run: Run) -> None:
    told = run("help", "biuld")
    assert (told.code, "did you mean 'build'?" in told.err) == (2, True)
    assert run("hlep").err.endswith("did you mean 'help'?\n")
    told = run("help", "plan", "build")
    assert (told.code, "help takes one verb: 2 given" in told.err) == (2, True)


def test_python_runs_the_package(tmp_path: Path) -> None:
    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mobileprep", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ask("--version").stdout == f"mobileprep {__version__}\n"
    assert "usage: mobileprep plan " in ask("plan", "--help").stdout
    told = ask("plan", "none.yaml")
    assert (told.returncode, "none.yaml" in told.stderr) == (4, True)


def test_a_misspelt_flag_gets_the_nearest(run: Run) -> None:
    told = run("transform", "--in_graph=a", "--out_graph=b", "--outptus=c")
    assert told.code == 2
    assert "did you mean --outputs?" in told.err


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("transform", "--in_grpah=a", "--out_graph=b"), "did you mean --in_graph?"),
        (("transform_graph", "-in_grpah=a", "-out_graph=b"), "did you mean --in_graph?"),
        (("transform", "--in_graph=a", "--out-grahp", "b"), "did you mean --out-graph?"),
        (("dot", "--grpah=x", "--dot_output=y"), "did you mean --graph?"),
    ],
)  # fmt: skip
def test_a_misspelt_flag_that_is_required_gets_the_nearest(
    run: Run, arguments: tuple[str, ...], near: str
) -> None:
    told = run(*arguments)
    assert told.code == 2
    assert "the following arguments are required: " in told.err
    assert near in told.err


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_a_blank_argument_is_refused(run: Run, blank: str) -> None:
    told = run("transform", "--in_graph=a", "--out_graph=b", blank)
    assert told.code == 2
    assert "unrecognized arguments: " in told.err


@pytest.mark.parametrize(
    "arguments",
    [("plan", ".", "--out=--"), ("plan", ".", "--set=--"), ("memmap", "--in_graph=--"),
     ("compare", "a", "b", "--rows=--"), ("doctor", "--library=--"), ("build", ".", "--html=--")],
)  # fmt: skip
def test_two_dashes_are_no_value(arguments: tuple[str, ...], run: Run) -> None:
    told = run(*arguments)
    assert told.code == 2, told.err
    assert "--" in told.err


def test_a_missing_flag_is_named(run: Run) -> None:
    told = run("transform", "--in_graph=a")
    assert told.code == 2
    assert "out_graph" in told.err


def test_an_interrupt_while_a_class_is_made_is_one_too(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    class Field:
        def __set_name__(self, _owner: type, _name: str) -> None:
            raise KeyboardInterrupt

    def interrupt(_arguments: object) -> int:
        type("Made", (), {"field": Field()})
        return 0

    monkeypatch.setattr("mobileprep.cli.main._dispatch", interrupt)
    told = run()
    assert told.code == 130
    assert told.err == "error: interrupted\n"


def test_an_interrupt_has_its_own_code(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    def interrupt(_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("mobileprep.cli.main._dispatch", interrupt)
    assert run("build", "x").code == 130


def test_an_interrupt_where_no_thread_starts_is_not_the_user_s(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    # OpenBLAS sends its own process one then.
    def interrupt(_arguments: object) -> int:
        raise KeyboardInterrupt

    def refuse(_thread: threading.Thread) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    monkeypatch.setattr("mobileprep.cli.main._dispatch", interrupt)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    told = run("build", "x")
    assert (told.code, "starts no more threads" in told.err) == (9, True)


def test_an_error_that_is_its_own_cause_is_told(
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


def test_a_bug_is_owned_up_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: object) -> int:
        message = "oops"
        raise ZeroDivisionError(message)

    monkeypatch.setattr("mobileprep.cli.main._dispatch", fail)
    assert main([]) == 70
    told = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in told
    assert "bug in mobileprep" in told


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
def test_what_the_machine_has_no_more_of_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, run: Run, error: Exception, message: str, hint: str
) -> None:
    def fail(_arguments: object) -> int:
        raise error

    monkeypatch.setattr("mobileprep.cli.main._dispatch", fail)
    told = run("build")
    assert told.code in {4, 9}
    assert message in told.err
    assert hint in told.err
    assert "bug" not in told.err


def test_a_reader_that_goes_away_is_no_error() -> None:
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
def test_what_others_have_to_do_at_the_end_is_done(before: str) -> None:
    code = f"{before}; from mobileprep.cli.main import entry; entry()"
    command = [sys.executable, "-c", code, "no-such-verb"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "seen\n")
    assert "unknown verb 'no-such-verb'" in done.stderr


def test_an_error_is_a_message_and_a_hint(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    def fail(_arguments: object) -> int:
        raise CorruptFileError(*("is empty", "export it again", "a.pb"))

    monkeypatch.setattr("mobileprep.cli.main._dispatch", fail)
    told = run("x")
    assert told.code == 4
    assert told.err == "error: a.pb: is empty [MP400]\nhelp: export it again\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["help", "build"], ["validate", "none.yaml"], ["plan", "none.yaml"]]
)
def test_starting_does_not_import_numpy_or_doit(arguments: list[str]) -> None:
    code = (
        "import sys; from mobileprep.cli.main import main; main(sys.argv[1:]);"
        "sys.exit(bool({'numpy', 'doit', 'google.protobuf'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, check=False
    )
    assert done.returncode == 0


def test_verbs_that_read_no_recipes_do_not_import_what_reads_them(tmp_path: Path) -> None:
    code = (
        "import sys; from mobileprep.cli.main import main; main(sys.argv[1:]);"
        "sys.exit('yaml' in sys.modules)"
    )
    for arguments in (["--version"], ["summarize", str(tmp_path / "none.pb")]):
        command = [sys.executable, "-c", code, *arguments]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(("given", "wanted"), [(None, "4"), ("20", "20")])
def test_blas_sleeps_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, given: str | None, wanted: str
) -> None:
    monkeypatch.delenv("OPENBLAS_THREAD_TIMEOUT", raising=False)
    if given is not None:
        monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", given)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    let_blas_sleep()
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"] == wanted
