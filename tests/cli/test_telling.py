"""``--quiet``, ``--verbose``, and ``--log-file``."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mobileprep import errors
from mobileprep.cli._shared import telling
from mobileprep.cli._shared.failures import mend_of, tell_error
from mobileprep.cli._shared.telling import KeptStream, slowest, warn, warn_all
from mobileprep.cli._shared.terminal.waiting import Activities
from mobileprep.core import parallel
from mobileprep.core.files import HASHING
from mobileprep.errors import InternalError, MobileprepError, RecipeError
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.cli.conftest import Run
from tests.fuzz.seeds import small_graph

DATED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  (.*)")
MODEL = "out/digits/phone/digits.pb"


def logged(name: str = "build.log") -> list[str]:
    """The lines of a log without their times."""
    lines = [DATED.fullmatch(line) for line in Path(name).read_text("utf-8").splitlines()]
    return [line[1] for line in lines if line is not None or pytest.fail("a line has no time")]


def test_successful_quiet_build_prints_nothing(digits: Path, run: Run) -> None:
    result = run("build", digits, "--quiet")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert Path(MODEL).is_file()


def test_quiet_command_prints_warnings_and_errors(built: Path, run: Run) -> None:
    built.write_text(built.read_text() + "\ncheck: {samples: 0}\n")
    result = run("build", built, "-q")
    assert result.code == 3
    assert "error: " in result.err
    command = ("transform", f"--in_graph={MODEL}", "--out_graph=x.pb", "--outputs=nothing")
    loud = run(*command, "--transforms=fold_constants")
    quiet = run(*command, "--transforms=fold_constants", "--quiet")
    assert "warning: the output 'nothing' is not in the graph" in quiet.err
    assert quiet.err == loud.err


def test_quiet_command_prints_results(built: Path, run: Run) -> None:
    loud, quiet = run("report", built, "--json"), run("report", built, "--json", "--quiet")
    assert (quiet.code, quiet.out) == (0, loud.out)


def test_log_contains_stages_and_messages(digits: Path, run: Run) -> None:
    result = run("build", digits, "--log-file", "build.log")
    assert result.code == 0
    lines = logged()
    assert lines[0].startswith("mobileprep ")
    assert lines[0].endswith(f"build {digits} --log-file build.log")
    assert lines[1:-1] == result.err.splitlines()
    assert any(line.startswith("digits/freeze  ") for line in lines)
    assert re.fullmatch(r"\d+\.\d\d s", lines[-1])


def test_log_of_a_quiet_build_is_complete(digits: Path, run: Run) -> None:
    assert run("build", digits, "--quiet", "--log-file=build.log").err == ""
    assert any(line.startswith("digits/freeze  ") for line in logged())


def test_log_contains_errors(digits: Path, run: Run) -> None:
    result = run("build", digits, "--target", "nothing", "--log-file", "build.log")
    assert result.code == 2
    assert any("no recipe has a target 'nothing'" in line for line in logged())


def test_unwritable_log_is_an_error(digits: Path, run: Run) -> None:
    result = run("validate", digits, "--log-file", "no/such/folder/x.log")
    assert (result.code, result.out) == (9, "")
    assert "no/such/folder/x.log: cannot be written" in result.err
    assert run("validate", digits, "--log-file", "-").code == 2
    assert run("validate", digits, "-q", "-v").code == 2


@pytest.mark.parametrize("name", ["digits/recipe.yaml", "digits/data/test.npz", "link"])
def test_log_overwrites_only_log_files(digits: Path, run: Run, name: str) -> None:
    Path("link").symlink_to(digits)
    before = Path(name).read_bytes()
    result = run("build", digits, "--log-file", name)
    assert result.code == 9
    assert f"{name}: exists and is not a log of mobileprep" in result.err
    assert Path(name).read_bytes() == before
    Path("build.log").touch()
    for _ in range(2):
        assert run("validate", digits, "--log-file", "build.log").code == 0


def test_truncated_log_is_recognized(digits: Path, run: Run) -> None:
    run("build", digits, "--log-file", "build.log")
    cut = Path("build.log").read_bytes()[100:]
    for data in (cut, cut.partition(b"\n")[2]):
        Path("build.log").write_bytes(data)
        assert run("validate", digits, "--log-file", "build.log").code == 0


@pytest.mark.parametrize("end", ["2026-01-01 00:00:00  done\n", "a 2026-01-01 00:00:00  0.10 s\n"])
def test_log_of_another_program_is_refused(digits: Path, run: Run, end: str) -> None:
    Path("other.log").write_text(f"2026-01-01 00:00:00  begun\n{end}")
    assert run("validate", digits, "--log-file", "other.log").code == 9


def test_log_truncated_during_a_command_continues_at_its_end(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(_line: str) -> str:
        os.truncate("build.log", 0)
        return "after\n"

    monkeypatch.setattr(telling, "dated", cut)
    assert run("validate", digits, "--log-file", "build.log").code == 0
    assert Path("build.log").read_bytes() == b"after\n"


def test_verbose_build_lists_slowest_stages(digits: Path, run: Run) -> None:
    (line,) = [x for x in run("build", digits, "-v").err.splitlines() if x.startswith("slowest: ")]
    seconds = [float(text) for text in re.findall(r"digits/[\w/-]+ (\d+\.\d\d) s \(", line)]
    assert 1 <= len(seconds) <= 5
    assert seconds == sorted(seconds, reverse=True)
    assert "slowest" not in run("build", digits, "-v").err


def test_verbose_transform_lists_slowest_steps(built: Path, run: Run) -> None:
    chain = "--transforms=fold_constants sort_by_execution_order"
    ends = ("--inputs=image", "--outputs=probabilities")
    result = run("transform", f"--in_graph={MODEL}", "--out_graph=x.pb", *ends, chain, "--verbose")
    assert result.code == 0
    assert re.search(r"^slowest: .*1/2 fold_constants \d\.\d\d s \(", result.err, re.MULTILINE)


@pytest.mark.parametrize("name", ["summarize", "summarize_graph"])
def test_short_flags_of_original_tools_are_unchanged(name: str, built: Path, run: Run) -> None:
    # With gflags, -v is the verbosity of the log.
    assert run(name, f"--in_graph={MODEL}", "-v=1").code == 0


def test_at_most_five_slowest_are_listed() -> None:
    seconds = {name: float(at) for at, name in enumerate("abcdefgh")}
    assert slowest(seconds) == (
        "h 7.00 s (25 %), g 6.00 s (21 %), f 5.00 s (18 %), e 4.00 s (14 %), d 3.00 s (11 %)"
    )
    assert slowest({"a": 1000.0, "b": 1.0}) == "a 1000.00 s (100 %)"
    assert slowest({}) == ""


def test_overwritten_lines_are_not_logged() -> None:
    shown, lines = io.StringIO(), []
    stream = KeptStream(shown, lines.append, is_quiet=False)
    for text in ("\r[=>  ]\r", "\r      \rwarned\n[=>  ]\r", "half a", " line\nrest"):
        stream.write(text)
    assert lines == ["warned", "half a line"]
    assert shown.getvalue() == "\r[=>  ]\r\r      \rwarned\n[=>  ]\rhalf a line\nrest"


def test_quiet_stream_passes_multiline_messages() -> None:
    shown = io.StringIO()
    stream = KeptStream(shown, None, is_quiet=True)
    stream.write("digits/freeze 1 s\n  aside\nwarning: beware\nhelp: of it\nmore\n")
    stream.write("note: nothing\n")
    assert shown.getvalue() == "warning: beware\nhelp: of it\n"
    assert stream.isatty() is False


def test_activity_is_printed_with_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    activities = Activities()
    assert activities.text() == ""
    with parallel.listening(activities.update):
        parallel.report_progress("1/2 fold", 0, 0, "nodes")
        clock[0] = 103.0
        assert activities.text() == "1/2 fold, 3 s"
        HASHING.expect(4_000_000)
        HASHING.add(1_000_000)
        clock[0] = 104.0
        HASHING.add(1_000_000)
        assert activities.text() == "hashing 2.0 MB/4.0 MB, 1.0 MB/s, 2 s left, 1 s"
        HASHING.add(2_000_000)
    HASHING.add(5)
    assert activities.seconds() == {"1/2 fold": 3.0, "hashing": 1.0}


SLOW = """
import time
import sys
from mobileprep.core import parallel
from mobileprep.cli._shared.terminal.waiting import Activities, waiting
with waiting(Activities()):
    parallel.report_progress("reading x.pb", 10, 40, "bytes")
    time.sleep(1.2)
    parallel.report_progress("reading x.pb", 20, 40, "bytes")
    time.sleep(1.2)
    print("message", file=sys.stderr)
    time.sleep(float(sys.argv[1]))
    print("result")
"""


@pytest.mark.slow
def test_long_activity_is_printed_only_on_terminals() -> None:
    pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    from tests.cli.terminals import on_terminal

    shown = on_terminal("0", code=SLOW)
    assert any(
        re.fullmatch(r"reading x.pb 20 bytes/40 bytes, .* left, 2 s", x) for x in shown.drawn
    )
    assert [line for line in shown.screen if line] == ["message", "result"]
    command = [sys.executable, "-c", SLOW, "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("result\n", "message\n")


def test_log_of_a_build_on_a_terminal_has_a_line_per_stage(digits: Path) -> None:
    pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    from tests.cli.terminals import on_terminal

    shown = on_terminal("build", digits, "--log-file", "build.log")
    assert shown.code == 0
    assert any("%" in line for line in shown.drawn)
    lines = logged()
    assert [line for line in lines if re.fullmatch(r"digits/freeze  \d+\.\d\d s", line)]
    assert not [line for line in lines if "%" in line]


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    warn("padding=SAM\x00 of a\x1b[2J\u202e")
    assert capsys.readouterr().err == ("warning: padding=SAM\\x00 of a\\x1b[2J\\u202e [MP000]\n")


def test_warnings_are_on_separate_lines(capsys: pytest.CaptureFixture[str]) -> None:
    warn_all(["one", "two\nand its hint"])
    expected = "warning: one [MP000]\nwarning: two [MP000]\nand its hint\n"
    assert capsys.readouterr().err == expected


WITHOUT_HINT = (RecipeError, InternalError)  # problems of recipes have their own hints


def classes(base: type[MobileprepError] = MobileprepError) -> list[type[MobileprepError]]:
    direct = [c for c in base.__subclasses__() if c.__module__ == errors.__name__]
    return direct + [deeper for c in direct for deeper in classes(c)]


@pytest.mark.parametrize("kind", [c for c in classes() if not issubclass(c, WITHOUT_HINT)])
def test_errors_have_a_hint_and_name_the_file(
    kind: type[MobileprepError], capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind("is bad")
    error.subject = "model.pb"
    assert tell_error(error, as_json=True) == kind.exit_code
    output = capsys.readouterr()
    assert output.err.splitlines()[1] == f"help: {mend_of(error)}"
    answer = json.loads(output.out)["error"]
    assert answer["hint"] == mend_of(error)
    assert kind.exit_code in (2, 9) or answer["where"] == "model.pb"


def test_file_of_the_command_is_added_only_if_no_other_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for where, expected in (
        ("labels.txt", "labels.txt"),
        ("WAV file", "model.pb: WAV file"),
        ("digits/phone/package", "model.pb: digits/phone/package"),
        ("/", "/"),
        ("model.pb, byte 3", "model.pb, byte 3"),
    ):
        error = errors.CorruptFileError("is bad", "try again", where)
        error.subject = "model.pb"
        tell_error(error, as_json=False)
        assert capsys.readouterr().err == f"error: {expected}: is bad [MP400]\nhelp: try again\n"


def test_control_characters_in_errors_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    tell_error(errors.CorruptFileError("\x1b[31m\u202e", "\x07", "a\rb"), as_json=False)
    err = capsys.readouterr().err
    assert all(c.isprintable() or c == "\n" for c in err)
    assert "\\x1b[31m\\u202e" in err


def test_long_messages_are_truncated(capsys: pytest.CaptureFixture[str]) -> None:
    tell_error(errors.CorruptFileError("x" * 70_000 + "end", "try again"), as_json=False)
    err = capsys.readouterr().err
    assert len(err) < 1100
    assert "...xxx" in err
    assert err.endswith("end [MP400]\nhelp: try again\n")
    tell_error(RecipeError("\n".join(f"r.yaml:{i}:1: bad" for i in range(500))), as_json=False)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 61
    assert lines[-1] == "... and 440 more lines"


def test_incomplete_graph_is_named_by_all_verbs(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "g.pb"
    nodes = [n for n in small_graph() if n.name != "relu"]
    write_graph(path, Graph([*nodes, Node("z", "NoSuchOp")]))
    out = tmp_path / "o"
    for arguments in (
        ("run", f"--graph={path}", "--feed=x=random", "--fetch=y"),
        ("transform", f"--in_graph={path}", f"--out_graph={out}", "--outputs=y",
         "--transforms=fold_constants"),
        ("freeze", f"--input_graph={path}", f"--output_graph={out}", "--output_node_names=y"),
        ("diff", path, path),
        ("init", path),
        ("benchmark", f"--graph={path}"),
    ):  # fmt: skip
        result = run(*arguments)
        assert result.code in (5, 6), arguments
        assert str(path) in result.err
        assert "\nhelp: " in result.err


def test_control_characters_in_output_are_escaped(tmp_path: Path, run: Run) -> None:
    path, other = tmp_path / "g.pb", tmp_path / "valid.pb"
    write_graph(path, Graph([Node("a\u202e\x1b[31m", "NoOp"), Node("b\x07", "No\x1bSuchOp")]))
    write_graph(other, small_graph())
    for verb in ("compare", "diff", "check-target", "migrate", "benchmark", "summarize"):
        files = (path, other) if verb in ("compare", "diff") else (f"--graph={path}",)
        files = (f"--in_graph={path}",) if verb == "summarize" else files
        result = run(verb, *((path,) if verb in ("check-target", "migrate") else files))
        assert all(c.isprintable() or c in "\n\t" for c in result.out + result.err), verb
