"""Progress of builds on pseudo-terminals."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading
import time
from contextlib import redirect_stderr
from pathlib import Path

import pytest

pytest.importorskip("pty", reason="this system has no pseudo-terminals")

from mobileprep.cli._shared.terminal.progress import Progress, _filled, _fitting
from mobileprep.cli._shared.terminal.waiting import Count
from tests.cli.terminals import COMMAND, after_carriage_returns, on_terminal, set_size

OUT = ["--out", "out"]
# A plugin transform that prints, warns, and sleeps.
TALKATIVE = """
import sys, time, warnings
from mobileprep.transforms.base import Result, Transform, transform


@transform("talkative")
class Talkative(Transform, frozen=True):
    seconds: float = 0.0

    def apply(self, graph, context):
        print("printed", end="")
        print(" in pieces")
        sys.stderr.write("no newline")
        warnings.warn("numbers went astray", RuntimeWarning)
        time.sleep(self.seconds)
        return Result(graph)
"""


def stages(digits: Path) -> int:
    """The number of stages of the recipe."""
    from mobileprep.building.targets import plan_state
    from mobileprep.recipe.load import load_recipe

    return len(plan_state([load_recipe(digits)]).plan.stages)


def make_talkative(digits: Path, seconds: float = 0.0) -> None:
    """Add the talkative transform to the recipe."""
    (digits.parent / "talkative.py").write_text(TALKATIVE)
    (digits.parent / "talkative.json").write_text(
        json.dumps(
            {
                "title": "talkative",
                "description": "Talks.",
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "seconds": {"type": "number", "default": 0.0, "description": "How long."}
                },
            }
        )
    )
    text = digits.read_text().replace("name: digits", "name: digits\nplugins: [talkative.py]")
    digits.write_text(
        text.replace("transforms:", f"transforms:\n  - talkative: {{seconds: {seconds}}}")
    )


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "4"])
@pytest.mark.parametrize("environ", [{}, {"NO_COLOR": "1"}, {"TERM": "tmux-256color"}])
def test_build_on_a_terminal_writes_few_bytes(
    digits: Path, jobs: str, environ: dict[str, str]
) -> None:
    begin = time.monotonic()
    shown = on_terminal("build", digits, *OUT, "-j", jobs, environ=environ)
    seconds = time.monotonic() - begin
    assert shown.code == 0
    assert len(shown.data) <= 20_000
    # A line at the start and the end of each stage, and one per second.
    bars = [line for line in shown.drawn if line.startswith("[")]
    assert len(bars) <= 2 * stages(digits) + 2 + seconds
    assert all(len(line) < 80 for line in bars)
    assert not [line for line in shown.screen if line.startswith("[")]
    assert f"{stages(digits)} of {stages(digits)} stages ran" in "\n".join(shown.screen)


def test_bar_goes_from_zero_to_100_percent(digits: Path) -> None:
    total = stages(digits)
    bars = [
        re.match(r"\[(=*)>? *\] +(\d+)% (\d+)/(\d+)(?: (.+))?$", line)
        for line in on_terminal("build", digits, *OUT).drawn
        if line.startswith("[")
    ]
    positions = [(len(b[1]), int(b[2]), int(b[3]), int(b[4])) for b in bars if b]
    assert len(positions) == len(bars)
    assert positions == sorted(positions)
    assert (positions[0], positions[-1]) == ((0, 0, 0, total), (20, 100, total, total))
    assert "digits/freeze" in {b[5] for b in bars if b}


def test_up_to_date_build_shows_no_bar(built: Path) -> None:
    shown = on_terminal("build", built, *OUT)
    assert "%" not in shown.data.decode()
    assert "up to date" in "\n".join(shown.screen)


@pytest.mark.slow
@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_escape_codes_can_be_disabled(digits: Path, environ: dict[str, str]) -> None:
    assert b"\x1b" not in on_terminal("build", digits, *OUT, environ=environ).data


def test_dumb_terminal_gets_a_line_per_stage(digits: Path) -> None:
    shown = on_terminal("build", digits, *OUT, environ={"TERM": "dumb"})
    assert b"\r" not in shown.data.replace(b"\r\n", b"\n")
    lines = [line for line in shown.screen if re.search(r"^digits/\S+  \d+\.\d\d s$", line)]
    assert len(lines) == stages(digits)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 5, 20, 40, 200])
def test_bar_fits_the_terminal_width(digits: Path, columns: int) -> None:
    shown = on_terminal("build", digits, *OUT, "-j", "2", columns=columns)
    total = stages(digits)
    assert shown.code == 0
    bars = [line for line in shown.drawn if re.match(r"\[| *\d+%", line)]
    assert all(len(line) < columns for line in bars)
    if columns >= 20:
        assert f"100% {total}/{total}" in bars[-1]


@pytest.mark.slow
def test_bar_follows_terminal_resizes(digits: Path) -> None:
    def shrink(terminal: int, data: bytes) -> None:
        if b"printed" in data:
            set_size(terminal, 30)

    make_talkative(digits, seconds=2.5)
    shown = on_terminal("build", digits, *OUT, meanwhile=shrink)
    assert shown.code == 0
    last = shown.data[shown.data.index(b"printed") :].split(b"100%")[0].split(b"\r")
    # Lines drawn before the resize may be wider.
    assert all(len(piece) < 30 for piece in last[-10:] if b"%" in piece)


@pytest.mark.slow
def test_long_stage_shows_elapsed_and_remaining_time(digits: Path) -> None:
    make_talkative(digits, seconds=2.5)
    shown = on_terminal("build", digits, *OUT)
    assert any(re.search(r"talkative [12] s, [0-9]+ s left$", line) for line in shown.drawn)


def test_output_of_transforms_is_printed_above_the_bar(digits: Path) -> None:
    make_talkative(digits)
    shown = on_terminal("build", digits, *OUT)
    assert shown.code == 0
    assert "printed in pieces" in shown.screen
    assert [line for line in shown.screen if "RuntimeWarning: numbers went astray" in line]
    assert [line for line in shown.screen if "no newline" in line]


def test_output_of_transforms_goes_to_stderr(digits: Path) -> None:
    make_talkative(digits)
    command = [sys.executable, "-c", COMMAND, "build", str(digits), *OUT, "--json"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert len(json.loads(done.stdout)) == 2
    assert "printed in pieces\n" in done.stderr


def test_bar_is_erased_before_an_error(digits: Path) -> None:
    (digits.parent / "data" / "test.npz").write_bytes(b"PK")
    shown = on_terminal("build", digits, *OUT)
    assert shown.code == 4
    assert [line for line in shown.screen if line.startswith("error: ")]


def test_bar_does_not_import_display_libraries(digits: Path) -> None:
    code = (
        "import sys; from mobileprep.cli.main import main; code = main(sys.argv[1:]);"
        "sys.exit(code or bool({'rich', 'curses'} & set(sys.modules)))"
    )
    assert on_terminal("build", digits, *OUT, code=code).code == 0


class Terminal(io.StringIO):
    """A terminal without a size."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal for stderr."""
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_warnings_are_on_separate_lines(terminal: Terminal) -> None:
    with redirect_stderr(terminal), Progress(2) as progress:
        progress.listen("r/a-stage-with-a-long-name", None)
        progress.warn("r/a", "short")
        progress.listen("r/a-stage-with-a-long-name", 0.1)
    screen = [after_carriage_returns(line) for line in terminal.getvalue().split("\n")]
    assert screen == ["warning: r/a: short [MP000]", ""]


def test_lines_of_threads_are_neither_mixed_nor_lost(terminal: Terminal) -> None:
    def talk(name: str) -> None:
        for number in range(200):
            sys.stderr.write(f"{name}-{number}")
            sys.stderr.write("\n")
            progress.listen(name, None if number % 2 else 0.0)

    with redirect_stderr(terminal), Progress(1000) as progress:
        threads = [threading.Thread(target=talk, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    screen = [after_carriage_returns(line) for line in terminal.getvalue().split("\n")]
    assert sorted(screen) == sorted(["", *(f"{t}-{n}" for t in "abcd" for n in range(200))])


def test_unchanged_state_is_drawn_once(terminal: Terminal) -> None:
    with redirect_stderr(terminal), Progress(2) as progress:
        before = len(terminal.getvalue())
        progress.listen("r/a", None)
        once = len(terminal.getvalue())
        progress.listen("r/a", None)
        assert before < once == len(terminal.getvalue())


def test_closed_terminal_does_not_stop_the_build(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_text: str) -> int:
        raise OSError(5, "Input/output error")

    with redirect_stderr(terminal), Progress(1) as progress:
        monkeypatch.setattr(terminal, "write", refuse)
        progress.listen("r/a", None)
        progress.listen("r/a", 0.0)


def test_bar_is_filled_proportionally() -> None:
    assert [_filled(done, 4) for done in (0, 1, 4)] == [
        ">" + " " * 19,
        "=" * 5 + ">" + " " * 14,
        "=" * 20,
    ]


@pytest.mark.parametrize(
    ("room", "expected"), [(9, "freeze/01"), (8, "...ze/01"), (4, "...1"), (3, ""), (0, "")]
)
def test_long_names_are_truncated_at_the_start(room: int, expected: str) -> None:
    assert _fitting("freeze/01", room) == expected


def test_samples_are_printed_with_rate_and_remaining_time() -> None:
    assert Count(10, 200, "samples", 5.0, 10).text(5.0) == "10/200 samples"
    assert Count(110, 200, "samples", 5.0, 10).text(9.0) == "110/200 samples, 25/s, 4 s left"
    assert Count(12, 20, "samples", 5.0, 10).text(9.0) == "12/20 samples, 0.5/s, 16 s left"


def test_bytes_are_printed_with_a_suitable_unit() -> None:
    assert Count(500, 900, "bytes", 0.0).text(1.0) == "500 bytes/900 bytes, 500 bytes/s, 1 s left"
    assert Count(1.2e9, 3.6e9, "bytes", 0.0).text(3.0) == "1.2 GB/3.6 GB, 400.0 MB/s, 6 s left"
    assert Count(4e6, 0, "bytes", 0.0).text(2.0) == "4.0 MB, 2.0 MB/s"


def test_samples_of_a_stage_follow_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    progress = Progress(2)
    progress.listen("evaluate", None)
    progress.advance("evaluate", 10, 200)
    clock[0] = 104.0
    progress.advance("evaluate", 110, 200)
    assert progress._text(200).endswith(" evaluate 4 s 110/200 samples, 25/s, 4 s left")
    progress.listen("evaluate", 5.0)
    assert "samples" not in progress._text(200)
