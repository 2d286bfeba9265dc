"""The verb ``benchmark``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.inspection.benchmark_runs import readable
from tests.cli.conftest import Run
from tests.cli.test_run import image_input, text_input
from tests.ops.lookup.test_tables import filled
from tests.transforms.graphs import const, conv, node, normal

QUICK = ("--num_runs=2", "--warmup_runs=1")


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A convolution with bias and activation, then a softmax."""
    nodes = [
        image_input("input", -1, 8, 8, 3),
        const("w", normal(3, 3, 3, 4)),
        const("b", normal(4)),
        conv("conv", "input w"),
        node("bias", "BiasAdd", "conv b"),
        node("relu", "Relu", "bias"),
        node("output", "Softmax", "relu"),
    ]
    write_graph(tmp_path / "graph.pb", Graph(nodes))
    return tmp_path / "graph.pb"


def tables(out: str) -> dict[str, list[list[str]]]:
    """The tables in an output by title, as rows of stripped cells."""
    result: dict[str, list[list[str]]] = {}
    title = ""
    for line in out.splitlines():
        heading = re.fullmatch(r"={30} (.*) ={30}", line)
        if heading:
            title = heading[1]
        elif line.startswith("\t") and title:
            result.setdefault(title, []).append([c.strip() for c in line[1:].split("\t")])
    return result


def test_tables_have_the_original_columns(run: Run, graph: Path) -> None:
    result = run("benchmark", f"--graph={graph}", *QUICK)
    assert result.code == 0
    by_title = tables(result.out)
    assert list(by_title) == [
        "Run Order",
        "Top by Computation Time",
        "Top by Memory Use",
        "Summary by node type",
    ]
    by_time = by_title["Top by Computation Time"]
    assert " ".join(by_time[0]) == (
        "[node type] [start] [first] [avg ms] [%] [cdf%] [mem KB] [times called] [Name]"
    )
    assert by_time[-1][5] == "100.000%"
    by_type = by_title["Summary by node type"]
    heads = "[Node type] [count] [avg ms] [avg %] [cdf %] [mem KB] [times called]"
    assert " ".join(by_type[0]) == heads
    assert {row[0] for row in by_type[1:]} == {"Conv2D", "BiasAdd", "Relu", "Softmax"}


def test_columns_have_the_original_widths(run: Run, graph: Path) -> None:
    result = run("benchmark", f"--graph={graph}", *QUICK, "--combine=false")
    relu = next(x for x in result.out.splitlines() if re.fullmatch(r"\t +Relu\t.*\trelu", x))
    assert [len(cell) for cell in relu[1:].split("\t")] == [24, 17, 9, 9, 8, 8, 10, 9, 4]
    summary = next(x for x in result.out.splitlines() if re.fullmatch(r"\t +Relu\t +1\t.*1", x))
    assert [len(cell) for cell in summary[1:].split("\t")] == [24, 9, 10, 11, 11, 10, 9]


def test_nodes_are_listed_without_combining(run: Run, graph: Path) -> None:
    result = run("benchmark", "--graph", graph, *QUICK, "--combine=false")
    order = tables(result.out)["Run Order"][1:]
    assert [(row[0], row[-1]) for row in order] == [
        ("Conv2D", "conv"),
        ("BiasAdd", "bias"),
        ("Relu", "relu"),
        ("Softmax", "output"),
    ]
    # 8 x 8 x 4 numbers of four bytes.
    assert [row[6] for row in order] == ["1.024"] * 4


def test_timing_and_memory_lines(run: Run, graph: Path) -> None:
    result = run("benchmark", "--graph", graph, *QUICK)
    assert re.search(
        r"^Average inference timings in us: Warmup: \d+, no stats: \d+, with stats: \d+$",
        result.out,
        re.MULTILINE,
    )
    assert re.search(r"^Timings \(microseconds\): count=2 ", result.out, re.MULTILINE)
    assert "\nMemory (bytes): count=2 curr=4096(all same)\n4 nodes observed\n" in result.out


def test_tables_can_be_hidden_or_shortened(run: Run, graph: Path) -> None:
    hidden = [f"--show_{n}=false" for n in ("run_order", "memory", "type", "summary")]
    result = run("benchmark", "--graph", graph, *QUICK, *hidden, "--time-limit=1", "--combine=0")
    by_title = tables(result.out)
    assert list(by_title) == ["Top by Computation Time"]
    assert len(by_title["Top by Computation Time"]) == 2
    assert "Timings (microseconds)" not in result.out


def test_show_sizes_lists_tensor_sizes(run: Run, graph: Path) -> None:
    result = run("benchmark", "--graph", graph, *QUICK, "--show_sizes", "--combine=false")
    assert "\noutput\t1\tfloat32\t4\t1\t8\t8\t4\n" in result.out


def test_show_flops_prints_costs(run: Run, graph: Path) -> None:
    result = run("benchmark", "--graph", graph, *QUICK, "--show_flops")
    # 2 x 256 x 27, and bias, activation and softmax: 1 + 1 + 5 for each of 256 elements.
    assert "\nFLOPs estimate: 15.62k\n" in result.out
    assert "\nParameters: 112 (448 bytes)\n" in result.out
    assert "\nActivation memory at its peak (bytes): 2048\n" in result.out
    cost = {row[0]: row[1:] for row in tables(result.out)["Cost by node type"]}
    assert cost["Conv2D"] == ["1", "13824", "88.525%", "1.200", "1.024"]
    assert cost["BiasAdd"][3:] == ["1.040", "1.024"]


def test_device_prints_the_best_possible_time(run: Run, graph: Path) -> None:
    result = run("benchmark", "--graph", graph, *QUICK, "--device=raspberry-pi-3")
    assert "\nDevice: Raspberry Pi 3, 5 GFLOP/s, " in result.out
    assert "\n  source: TensorFlow Mobile" in result.out
    assert "\nAt best: 0.00312 ms for each inference, 320,184 a second\n" in result.out
    result = run("benchmark", "--graph", graph, "--device=raspbery-pi-3")
    assert (result.code, result.out) == (2, "")
    assert "did you mean 'raspberry-pi-3'?" in result.err


def test_json_contains_all_results(run: Run, graph: Path) -> None:
    result = run("benchmark", "--graph", graph, *QUICK, "--json", "--device=phone-2016")
    data = json.loads(result.out)
    assert data["engine"] == "numpy"
    assert data["microseconds"]["no_stats"]["count"] == 2
    assert data["flops"] == 15616
    assert data["flops_by_type"]["Conv2D"] == 13824
    assert data["device"]["best_seconds"] == 15616 / 20e9
    assert [c["name"] for c in data["costs"]] == ["conv", "bias", "relu", "output"]
    assert data["costs"][0]["written_bytes"] == 1024
    assert {n["type"] for n in data["nodes"]} == {"Conv2D", "BiasAdd", "Relu", "Softmax"}


def test_input_layer_flags(run: Run, tmp_path: Path) -> None:
    nodes = [
        image_input("a", -1),
        node("b", "Placeholder", T=None, dtype=DType.INT32),
        text_input("c"),
        node("floats", "Cast", "b", T=None, SrcT=DType.INT32, DstT=DType.FLOAT),
        node("sum", "AddV2", "a floats"),
        node("length", "StringLength", "c", T=None),
    ]
    write_graph(tmp_path / "g.pb", Graph(nodes))
    result = run(
        *("benchmark", "--graph", tmp_path / "g.pb", *QUICK, "--show_sizes"),
        *("--input_layer=a,b,c", "--input_layer_shape=2:2:3,1", "--output_layer=sum,length"),
        *("--input_layer_type=float,int32,string", "--input-layer-values=1,2:3"),
    )
    assert result.code == 0
    assert "\nsum\t1\tfloat32\t1\t2\n" in result.out
    assert "\nlength\t1\tint32\t2\t3\t1\n" in result.out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--input_layer=input", "--input_layer_shape=1,2:3"], "1 input layers and 2 in"),
        (["--input_layer_shape=-1,8,8,3"], "has an unknown size"),
        (["--input_layer_shape=1,x"], "'1,x' is not a shape"),
        (["--input_layer_type=frob"], "'frob' is not a dtype that can be fed"),
        (["--input_layer_values=a"], "'a' is not a list of numbers"),
        (["--input_layer_shape=1,8,8,3", "--input_layer_values=" + "1," * 193], "193 values"),
        (["--input_layer=inputs"], "the graph has no tensor 'inputs'"),
        (["--output_layer=outputs"], "'outputs' is not in the graph"),
        (["--input_layer_shape=99999,99999,99,99"], "0 values for"),
    ],
)
def test_invalid_input_flags_are_refused(
    run: Run, graph: Path, flags: list[str], message: str
) -> None:
    result = run("benchmark", "--graph", graph, *flags)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


def test_unknown_input_shape_is_required_except_for_the_default_layer(
    run: Run, tmp_path: Path
) -> None:
    for name, code in (("other", 2), ("input", 0)):
        nodes = [node(name, "Placeholder", T=None, dtype=DType.FLOAT), node("out", "Relu", name)]
        write_graph(tmp_path / "g.pb", Graph(nodes))
        result = run("benchmark", "--graph", tmp_path / "g.pb", *QUICK)
        assert result.code == code
    scalar = ("--input_layer=input", "--input_layer_shape=,", "--input_layer_type=float")
    assert run("benchmark", "--graph", tmp_path / "g.pb", *QUICK, *scalar).code == 0


def test_every_placeholder_is_fed(run: Run, tmp_path: Path) -> None:
    nodes = [image_input("input", 1, 2), image_input("more", 2), node("out", "Add", "input more")]
    write_graph(tmp_path / "g.pb", Graph(nodes))
    assert run("benchmark", "--graph", tmp_path / "g.pb", *QUICK).code == 0


def test_lookup_tables_are_initialized_before_the_run(run: Run, tmp_path: Path) -> None:
    write_graph(tmp_path / "g.pb", filled())
    result = run(
        *("benchmark", "--graph", tmp_path / "g.pb", *QUICK, "--show_flops"),
        *("--output_layer=find", "--input_layer=words", "--input_layer_shape=4"),
    )
    assert result.code == 0
    rows = tables(result.out)["Run Order"]
    assert {row[-1] for row in rows[1:]} == {"table", "find"}


def test_max_time_limits_runs(run: Run, graph: Path) -> None:
    result = run("benchmark", "--graph", graph, "--max_num_runs=0", "--max_time=0.01", "--json")
    times = json.loads(result.out)["microseconds"]["no_stats"]
    assert times["count"] >= 1
    # All runs but the last ended within the time limit.
    assert times["avg"] * times["count"] - times["max"] <= 10_001


def wall_time(path: Path) -> float:
    """Field 4 of a report entry: the seconds of a run."""
    data = path.read_bytes()
    # Fields 3, 4, and 5 are doubles and come last.
    assert data[-27::9] == b"\x19\x21\x29"
    return float(np.frombuffer(data[-17:-9], "<f8")[0])


def test_output_prefix_writes_report_entries(run: Run, graph: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "report."
    flags = ("--benchmark_name=a/b", f"--output_prefix={prefix}")
    assert run("benchmark", "--graph", graph, *QUICK, *flags).code == 0
    names = sorted(p.name for p in tmp_path.glob("report.*"))
    assert names == [
        "report.a__b",
        "report.a__b_BiasAdd",
        "report.a__b_Conv2D",
        "report.a__b_Relu",
        "report.a__b_Softmax",
        "report.a__b_meta-first-inference",
        "report.a__b_meta-init",
        "report.a__b_meta-init-plus-first-inference",
    ]
    entry = (tmp_path / "report.a__b").read_bytes()
    # Field 1 of the message is the entry, whose field 1 is the name and field 2 the runs.
    assert entry[2:9] == b"\x0a\x03a/b\x10\x02"[:7]
    for kind, runs in (("init", 1), ("init-plus-first-inference", 1)):
        name = b"a/b_meta-" + kind.encode()
        written = (tmp_path / f"report.a__b_meta-{kind}").read_bytes()
        assert written[2:].startswith(b"\x0a%c%b\x10%c" % (len(name), name, runs))
    assert 0 < wall_time(tmp_path / "report.a__b") < 10
    init, first, both = (
        wall_time(tmp_path / f"report.a__b_meta-{kind}")
        for kind in ("init", "first-inference", "init-plus-first-inference")
    )
    assert both == pytest.approx(init + first)
    result = run("benchmark", "--graph", graph, *QUICK, *flags)
    assert result.code == 9
    assert "exists already" in result.err


def test_numbers_are_formatted_like_tensorflow() -> None:
    assert [readable(n) for n in (0, 999, 1000, 15616, 1_157_773_296, 5_000_000_000_000)] == [
        "0",
        "999",
        "1.00k",
        "15.62k",
        "1.16B",
        "5.00T",
    ]


def test_times_and_operations_by_op_and_scope(run: Run, graph: Path) -> None:
    result = run("benchmark", f"--graph={graph}", *QUICK, "--show_flops", "--scope_depth=2")
    by_title = tables(result.out)
    rows = by_title["Time and cost by node type"]
    assert rows[0] == [
        *("[count]", "[avg ms]", "[time %]", "[FLOPs]", "[FLOPs %]", "[GFLOP/s]", "[Name]"),
    ]
    flops = {row[-1]: int(row[3]) for row in rows[1:]}
    # 2 operations for each of 27 weights, 1 for bias and activation, 5 for the softmax.
    assert sum(flops.values()) == 64 * 4 * (2 * 27 + 1 + 1 + 5)
    assert sum(float(row[2].rstrip("%")) for row in rows[1:]) == pytest.approx(100, abs=0.05)
    (scope,) = by_title["Time and cost by scope"][1:]
    assert (scope[3], scope[-1]) == (str(sum(flops.values())), "(none)")
    diagnosis = result.out.splitlines()[-1]
    assert re.match(r"  convolutions and matrix products take [\d.]+% of the time", diagnosis)


def test_json_has_times_and_diagnosis(run: Run, graph: Path) -> None:
    data = json.loads(run("benchmark", f"--graph={graph}", *QUICK, "--json").out)
    shares = data["time_by_op"]
    assert sum(share["share"] for share in shares) == pytest.approx(1)
    slowest = shares[0]
    assert slowest["gflops"] == pytest.approx(slowest["flops"] / slowest["microseconds"] / 1e3)
    assert data["diagnosis"]["measure"] == "time"
    assert data["diagnosis"]["findings"] == []
