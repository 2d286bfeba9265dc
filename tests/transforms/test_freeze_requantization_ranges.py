"""freeze_requantization_ranges: ranges of a log take the place of ranges measured at run time."""

import numpy as np
import pytest

from mobileprep.errors import CorruptFileError, TransformError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from tests.transforms.graphs import apply, node, placeholder, shown

NAME = "freeze_requantization_ranges"
RANGE = {"T": None, "Tinput": DType.QINT32}


def _graph(*more):
    return Graph(
        [
            placeholder(kind=DType.QINT32),
            node("range", "RequantizationRange", "x x:1 x:2", **RANGE),
            node("out", "Requantize", "x x:1 x:2 range:0 range:1", **RANGE),
            *more,
        ]
    )


def _log(tmp_path, *lines):
    path = tmp_path / "run.log"
    path.write_text("\n".join(lines))
    return str(path)


def _line(low, high, name="range"):
    return f"2017-01-01 logging_ops.cc:79] ;{name}__print__;__requant_min_max:[{low}][{high}]"


def _frozen(graph, log, **options):
    result = apply(NAME, graph, min_max_log_file=log, **options)
    values = [result.graph[f"range/frozen_{end}"].attr_tensor("value") for end in ("min", "max")]
    return [float(v.array()) for v in values]


def test_golden(tmp_path):
    log = _log(tmp_path, "starting", _line(-1.5, 2.5), "done")
    result = apply(NAME, _graph(), min_max_log_file=log)
    assert result.matched == 1
    assert shown(result.graph) == (
        "x = Placeholder()\n"
        "range/frozen_min = Const() value=float32[]:-1.5\n"
        "range/frozen_max = Const() value=float32[]:2.5\n"
        "out = Requantize(x, x:1, x:2, range/frozen_min:0, range/frozen_max:0) Tinput=qint32"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [-19, 19]),
        ({"min_percentile": 0.0, "max_percentile": 0.0}, [-20, 19]),
        ({"min_percentile": 10.0, "max_percentile": 20.0}, [-18, 16]),
        ({"min_percentile": 100.0, "max_percentile": 100.0}, [-1, 0]),
    ],
)
def test_percentiles_pass_over_the_outermost_ends(tmp_path, options, expected):
    log = _log(tmp_path, *(_line(i - 20, i) for i in np.random.default_rng(0).permutation(20)))
    assert _frozen(_graph(), log, **options) == expected


def test_a_position_between_two_values_is_rounded_up(tmp_path):
    log = _log(tmp_path, *(_line(i - 10, i) for i in range(10)))
    assert _frozen(_graph(), log) == [-9, 9]


@pytest.mark.parametrize(
    "line",
    [
        "range__print__;__requant_min_max:[1][2][3]",
        "range__print__;__requant_min_max:[1]",
        "range__print__;__requant_min_max:[a][2]",
        "range__print__;__requant_min_max:[][2]",
        "range;__requant_min_max:[1][2]",
        "range__print__;other;__requant_min_max:[1][2]",
        "range__print__:[1][2]",
    ],
)
def test_lines_of_another_form_are_passed_over(tmp_path, line):
    log = _log(tmp_path, line, _line(-1, 1))
    assert _frozen(_graph(), log) == [-1, 1]
    with pytest.raises(TransformError, match="holds no range"):
        apply(NAME, _graph(), min_max_log_file=_log(tmp_path, line))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("2024-05-01 12:00:00.123456: I tensorflow/core/kernels/logging_ops.cc:79] ", ""),
        ("I0000 00:00:1795301026.783612   13214 logging_ops.cc:153] ", "\r"),
        ("05-01 12:00:00.123  4242  4242 I native  : ", ""),
        ("\x1b[1;32m[ info ] \x1b[0m", "\x1b[0m"),
        ('{"log":"', '\\n","stream":"stderr","time":"2024-05-01T12:00:00Z"}'),
        (";RequantizationRange;", ""),
    ],
)
def test_text_around_a_log_line_is_ignored(tmp_path, before, after):
    line = f"{before};range__print__;__requant_min_max:[-20.887871][22.274715]{after}"
    expected = [float(np.float32(v)) for v in (-20.887871, 22.274715)]
    assert _frozen(_graph(), _log(tmp_path, "first", line, "last")) == expected


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_log_of_another_shell_is_read(tmp_path, encoding):
    path = tmp_path / "run.log"
    path.write_text(f"{_line(-1, 1)}\r\n", encoding=encoding)
    assert _frozen(_graph(), str(path)) == [-1, 1]


def test_numbers_may_be_written_as_programs_write_them(tmp_path):
    log = _log(tmp_path, _line(" -1.5e-3 ", "inf"))
    assert _frozen(_graph(), log) == [np.float32(-1.5e-3), np.inf]


def test_a_node_that_is_not_there_is_named(tmp_path):
    log = _log(tmp_path, _line(-1, 1, "ranges"))
    with pytest.raises(TransformError, match="'ranges'") as error:
        apply(NAME, _graph(), min_max_log_file=log)
    assert "'range'" in error.value.hint


def test_a_node_that_measures_no_range_is_named(tmp_path):
    with pytest.raises(TransformError, match="'out', which is a Requantize"):
        apply(NAME, _graph(), min_max_log_file=_log(tmp_path, _line(-1, 1, "out")))


def test_a_log_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CorruptFileError, match=r"no\.log"):
        apply(NAME, _graph(), min_max_log_file=str(tmp_path / "no.log"))


def test_nodes_without_a_range_in_the_log_are_counted(tmp_path):
    other = node("other", "RequantizationRange", "x x:1 x:2", **RANGE)
    result = apply(NAME, _graph(other), min_max_log_file=_log(tmp_path, _line(-1, 1)))
    assert result.skipped == {"the log has no range of it": 1}
    assert "other" in result.graph


@pytest.mark.parametrize("ends", [(0.5, 2.0), (-1.0, -2.0)])
def test_a_range_that_no_run_would_take_goes_on_being_measured(tmp_path, ends):
    result = apply(NAME, _graph(), min_max_log_file=_log(tmp_path, _line(*ends)))
    assert result.skipped == {"its range is none": 1}
    assert "range" in result.graph


def test_control_inputs_on_the_node_move_to_its_constant(tmp_path):
    after = node("after", "NoOp", "^range", T=None)
    graph = apply(NAME, _graph(after), min_max_log_file=_log(tmp_path, _line(-1, 1))).graph
    assert [str(r) for r in graph["after"].inputs] == ["^range/frozen_min"]
