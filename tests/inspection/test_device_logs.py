"""Logs of benchmarks on devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import CorruptFileError
from mobileprep.inspection import device_logs
from mobileprep.inspection.device_logs import DeviceLog, OpTime, parse_log, read_log

LOGS = Path(__file__).with_name("device_logs")
LITERT = """\
STARTING!
Graph: [/data/local/tmp/m.tflite]
INFO: Created TensorFlow Lite XNNPACK delegate for CPU.
Initialized session in 5.579ms.
count=1 curr=1357602 p5=1357602 median=1357602 p95=1357602

count=50 first=1249964 curr=1240143 min=1238588 max=1252566 avg=1.24027e+06 std=2565 p5=1238753

Inference timings in us: Init: 5579, First inference: 1357602, Warmup (avg): 1.3576e+06, \
Inference (avg): 1.24027e+06
Memory footprint delta from the start of the tool (MB): init=6.36328 overall=109.832
"""
HEAD = (
    "\t             [node type]\t  [first]\t [avg ms]\t     [%]\t  [cdf%]\t  [mem KB]"
    "\t[times called]\t[Name]"
)
DELEGATED = f"""\
Profiling Info for Benchmark Initialization:
============================== Run Order ==============================
{HEAD}
\t AllocateTensors\t 1.356\t 1.356\t100.000%\t100.000%\t 0.000\t        1\tAllocateTensors/0

Operator-wise Profiling Info for Regular Benchmark Runs:
============================== Run Order ==============================
{HEAD}
\t TfLiteXNNPackDelegate\t 9.000\t 9.000\t90.000%\t90.000%\t 0.000\t        1\t[a, b]:3
\t CUSTOM_TOPK\t 1.000\t 1.000\t10.000%\t100.000%\t 0.000\t        1\t[c]:4

Delegate internal: 
============================== Run Order ==============================
{HEAD}
\t Convolution (NHWC, F32) IGEMM\t 6.000\t 6.500\t66%\t66%\t 0.0\t 1\tDelegate/Convolution:0
\t Softmax (NC, F32)\t 2.000\t 2.500\t33%\t100%\t 0.0\t 1\tDelegate/Softmax (NC, F32):1

"""  # noqa: W291
MOBILE = """\
I/native  (12345): benchmark_model.cc:324 count=65 first=157668 curr=150971 min=84108 max=186161 \
avg=154048 std=15025
I/native  (12345): benchmark_model.cc:324 count=61 first=143913 curr=150588 min=89136 max=256518 \
avg=165940 std=28180
I/native  (12345): benchmark_model.cc:538 Average inference timings in us: Warmup: 169371, \
no stats: 154047, with stats: 165939
I/native  (12345): mobileprep: device=Nexus 5
I/native  (12345): mobileprep: password=x
"""


def test_litert_benchmark_model() -> None:
    log = parse_log(LITERT + "mobileprep: threads=4\n", "a.log")
    assert log == DeviceLog(
        "litert", 1240.27, 2.565, 1238.588, 50, 109.832, ("XNNPACK",), (), {"threads": "4"}
    )


@pytest.mark.parametrize(
    "prefix",
    [
        "05-31 10:31:13.022 21767 21767 I tflite  : ",
        "I/tflite  (21767): ",
        "tflite  : ",
        "INFO: ",
        "2026-05-04 10:00:00.123456+0200 BenchmarkApp[1234:56789] ",
        "I0000 00:00:1795848604.292725    4662 benchmark.cc:12] ",
        "2017-11-27 08:56:45.692227: I tensorflow/tools/benchmark/benchmark_model.cc:538] ",
    ],
)
def test_prefixes_of_logs_are_ignored(prefix: str) -> None:
    text = "".join(f"{prefix}{line}\n" for line in (LITERT + DELEGATED).splitlines())
    assert parse_log(text, "a.log") == parse_log(LITERT + DELEGATED, "a.log")


def test_delegate_profile_replaces_the_delegate() -> None:
    log = parse_log(LITERT + DELEGATED, "a.log")
    assert log.ops == (
        OpTime("Convolution (NHWC, F32) IGEMM", "Delegate/Convolution:0", 6.5),
        OpTime("Softmax (NC, F32)", "Delegate/Softmax (NC, F32):1", 2.5),
        OpTime("CUSTOM_TOPK", "[c]:4", 1.0),
    )


def test_tensorflow_benchmark_model_on_android() -> None:
    log = parse_log(MOBILE, "a.log")
    expected = DeviceLog("tensorflow", 154.047, 15.025, 84.108, 65, facts={"device": "Nexus 5"})
    assert log == expected


def test_kernels_of_the_gpu_delegate() -> None:
    text = (
        "INFO: Created TensorFlow Lite delegate for GPU.\n"
        "Per kernel timing(2 kernels):\n"
        "  conv_generic 1 - 0.250000 ms, 3.5 Gbyte/s, 12.1 Gflops\n"
        "  depthwise_conv 2 - 0.125000 ms\n"
        "--------------------\nAccumulated time per operation type:\n"
        "  conv_generic(x1) - 0.250000 ms\n"
    )
    log = parse_log(LITERT + text, "a.log")
    assert log.delegates == ("XNNPACK", "GPU")
    assert log.ops == (
        OpTime("conv_generic", "conv_generic 1", 0.25),
        OpTime("depthwise_conv", "depthwise_conv 2", 0.125),
    )


def test_older_litert_and_calls_in_loops() -> None:
    text = "Average inference timings in us: Warmup: 83235, Init: 38467, no stats: 79760.9\n"
    table = (
        f"============================== Run Order ==============================\n{HEAD}\n"
        "\t Mul\t 0.5\t 0.25\t1%\t1%\t0.0\t 8\tloop/mul\n"
    )
    log = parse_log(text + table, "a.log")
    assert (log.format, log.runs) == ("litert", None)
    assert log.mean_ms == pytest.approx(79.7609)
    assert log.ops == (OpTime("Mul", "loop/mul", 2.0),)


def test_real_profile_of_tensorflow_115() -> None:
    log = read_log(LOGS / "stat_summarizer_1.15.log")
    assert (log.format, log.mean_ms, log.std_ms, log.min_ms, log.runs) == (
        *("tensorflow", 0.25862, 0.032, 0.214),
        50,
    )
    times = {op.name: (op.op, op.ms) for op in log.ops}
    assert times["Conv/Relu6"] == ("_FusedConv2D", 0.125)
    assert times["Depthwise/depthwise"] == ("DepthwiseConv2dNative", 0.039)
    assert len(log.ops) == 11 + 12


def test_real_profile_of_tensorflow_221() -> None:
    log = read_log(LOGS / "stat_summarizer_2.21.log")
    times = {op.name: (op.op, op.ms) for op in log.ops}
    assert times["Conv/Relu6"] == ("_MklNativeFusedConv2D", 0.033)
    assert (log.mean_ms, log.runs) == (0.09616, 50)


def test_real_profile_of_litert() -> None:
    log = read_log(LOGS / "litert_profiler_2.3.log")
    assert (log.format, len(log.ops)) == ("litert", 31)
    assert log.ops[0] == OpTime("Convolution (NHWC, F32) IGEMM", "[Delegate]:0", 1.447)
    assert (log.ops[27].op, log.ops[27].ms) == ("Mean (ND) Reduce2", pytest.approx(0.007))


def test_litert_profiler_merges_the_ops_of_several_delegates() -> None:
    table = (
        "====== Run Order ======\n"
        "     [node type]    [start]    [first]   [avg ms]      [%]   [cdf%]   [mem KB]"
        " [times called]   [Name]\n"
        "     Delegate/Add (ND)      0.0      0.1      0.25     50%   50%    0.0      40"
        "   [Delegate]:0\n"
        "     RELU      0.0      0.1      0.5     50%   100%    0.0      20   [Builtin]:1\n"
    )
    assert parse_log(table, "a.log").ops == (
        OpTime("Add (ND)", "[Delegate]:0", 0.5, 2),
        OpTime("RELU", "[Builtin]:1", 0.5),
    )


def test_real_litert_benchmark() -> None:
    log = read_log(LOGS / "litert_benchmark_2.3.log")
    assert (log.format, log.mean_ms, log.std_ms, log.min_ms, log.runs) == (
        *("litert", 25.43, 26.15, 11.22),
        30,
    )
    assert log.delegates == ("XNNPACK",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a line `Inference timings in us: ...`"),
        ("count=3\nInference timings in us: Init: 1, Inference (avg): nan\n", "has no timings"),
        (LITERT + MOBILE, "the timings of 2 benchmarks: expected those of one"),
    ],
)
def test_other_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(CorruptFileError) as caught:
        parse_log(text, "a.log")
    assert message in caught.value.message
    assert caught.value.where == "a.log"


def test_hostile_logs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "\t Mul\t 0.5\t nan\t1%\t1%\t0.0\t 8\tx\n" + "\t".join("9" * 999 for _ in range(8))
    hostile = (
        f"{LITERT}===== Run Order =====\n{HEAD}\n{rows}\n" + "Inference timings in us: " * 1000
    )
    assert parse_log(hostile, "a.log").ops == ()
    monkeypatch.setattr(device_logs, "_MAX_ROWS", 5)
    with pytest.raises(CorruptFileError, match="more than 5 rows"):
        parse_log(f"===== Run Order =====\n{HEAD}\n" + "\t a\n" * 9, "a.log")
    monkeypatch.setattr(device_logs, "_MAX_BYTES", 10)
    (tmp_path / "a.log").write_text(LITERT)
    with pytest.raises(CorruptFileError, match="bytes"):
        read_log(tmp_path / "a.log")
