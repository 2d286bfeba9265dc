"""Regression tests: small files that once caused crashes or endless runs are refused."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import saved_model_pb2
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from tests.cli.conftest import Run
from tests.fuzz.seeds import loop_graph, small_graph
from tests.ops.graphs import c, n, p
from tests.transforms.graphs import node

REFUSED = (2, 3, 4, 5, 6, 7, 8, 9)


pytestmark = pytest.mark.usefixtures("workdir")


def text_graph(text: str) -> str:
    Path("g.pbtxt").write_text(text)
    return "g.pbtxt"


def refused(run: Run, *arguments: object) -> str:
    result = run(*arguments)
    assert result.code in REFUSED, (result.code, result.err)
    assert "help: " in result.err or result.code == 3, result.err
    return result.err


IF = """
node { name: "y" op: "StatelessIf" attr { key: "Tcond" value { type: DT_BOOL } }
  attr { key: "Tin" value { list { } } } attr { key: "Tout" value { list { type: DT_FLOAT } } }
  attr { key: "then_branch" value { func { name: "f" } } }
  attr { key: "else_branch" value { func { name: "f" } } } }
library { function { signature { name: "f" output_arg { name: "o" type: DT_FLOAT } }
  node_def { name: "c" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
    attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 1 } } } }
  ret { key: "o" value: "c:output:0" } } }
"""


def test_branch_without_inputs_is_refused(run: Run) -> None:
    path = text_graph(IF)
    assert "'y'" in refused(run, "run", f"--graph={path}", "--fetch=y")
    frozen = ("--output_graph=o.pb", "--output_node_names=y", "--control_flow=lower")
    assert "'y'" in refused(run, "freeze", f"--input_graph={path}", *frozen)


@pytest.mark.parametrize("op", ["NextIteration", "Exit", "Enter", "Switch", "Merge", "LoopCond"])
def test_misplaced_loop_nodes_are_not_a_bug(run: Run, op: str) -> None:
    attrs: dict[str, Any] = {"frame_name": "w"} if op == "Enter" else {}
    attrs |= {"N": 1} if op == "Merge" else {}
    attrs |= {"T": None} if op == "LoopCond" else {}
    for inputs in ("x", ""):
        odd = node("odd", op, inputs, **attrs)
        after = node("y", "Neg", "odd")
        write_graph(Path("g.pb"), Graph([p("x", np.float32, ()), odd, after]))
        for command in (
            ("run", "--graph=g.pb", "--feed=x=1", "--fetch=y"),
            ("freeze", "--input_graph=g.pb", "--output_graph=o.pb", "--output_node_names=y"),
            ("summarize", "--in_graph=g.pb"),
        ):
            result = run(*command)
            assert result.code in (0, *REFUSED), result.err


@pytest.mark.parametrize("name", [x.name for x in loop_graph() if x.inputs and x.op != "Const"])
def test_loops_with_missing_inputs_are_refused(run: Run, name: str) -> None:
    graph = loop_graph()
    without = [node(x.name, x.op, "", **_bare(x)) if x.name == name else x for x in graph]
    write_graph(Path("g.pb"), graph.with_nodes(without))
    refused(run, "run", "--graph=g.pb", "--feed=x=1", "--fetch=y")


def _bare(held: Any) -> dict[str, Any]:
    return {"T": None, **held.attrs}


def test_string_constant_with_integers_is_not_a_bug(run: Run) -> None:
    meta = saved_model_pb2.MetaGraphDef()
    constant = meta.graph_def.node.add(name="c", op="Const")
    constant.attr["dtype"].type = DType.STRING.value
    value = constant.attr["value"].tensor
    value.dtype = DType.UINT16.value
    value.int_val.extend([1, 2])
    value.tensor_shape.dim.add(size=2)
    Path("m.meta").write_bytes(meta.SerializeToString())
    Path("m.pb").write_bytes(meta.graph_def.SerializeToString())
    frozen = ("--output_graph=o.pb", "--output_node_names=c")
    for source in ("--input_meta_graph=m.meta", "--input_graph=m.pb"):
        result = run("freeze", source, *frozen)
        assert result.code in (0, *REFUSED), result.err
    for command in (
        ("run", "--graph=m.pb", "--fetch=c"),
        ("summarize", "--in_graph=m.pb"),
        ("transform", "--in_graph=m.pb", "--out_graph=o.pb", "--outputs=c",
         "--transforms=fold_constants sort_by_execution_order"),
    ):  # fmt: skip
        result = run(*command)
        assert result.code in (0, *REFUSED), result.err


def test_sum_of_missing_inputs_is_refused(run: Run) -> None:
    write_graph(Path("g.pb"), Graph([p("x", np.float32, (2,)), node("y", "AddN", "x", N=1 << 62)]))
    result = refused(run, "run", "--graph=g.pb", "--feed=x=1,2", "--fetch=y")
    assert "g.pb" in result
    assert "'y'" in result
    for verb in (
        ("benchmark", "--graph=g.pb", "--max_num_runs=1"),
        ("summarize", "--in_graph=g.pb"),
    ):
        assert run(*verb).code in (0, *REFUSED)


def test_model_without_type_attributes_is_not_a_bug(run: Run, built: Path) -> None:
    frozen = ("--output_graph=f.pb", "--output_node_names=probabilities")
    model = built.parent / "model"
    source = (
        f"--input_graph={model / 'graph.pbtxt'}",
        f"--input_checkpoint={model / 'model.ckpt-1000'}",
    )
    assert run("freeze", *source, *frozen).code == 0
    steps = "fold_constants remove_attribute(attribute_name=T) merge_scale_and_bias"
    result = run("transform", "--in_graph=f.pb", "--out_graph=o.pb", "--inputs=image",
               "--outputs=probabilities", f"--transforms={steps}")  # fmt: skip
    assert result.code in (0, *REFUSED), result.err


@pytest.mark.slow
def test_wide_control_inputs_take_linear_time(run: Run) -> None:
    def seconds(count: int) -> float:
        heads = [node(f"h{i}", "NoOp", "", T=None) for i in range(200)]
        controls = " ".join(f"^h{i}" for i in range(200))
        ends = [
            node(f"n{i}", "Neg", f"{'x' if i == 0 else f'n{i - 1}'} {controls}")
            for i in range(count)
        ]
        write_graph(Path("g.pb"), Graph([p("x", np.float32, (2,)), *heads, *ends]))
        started = time.process_time()
        assert run("init", "g.pb", "--recipe", f"r{count}.yaml").code == 0
        return time.process_time() - started

    first = seconds(100)
    assert seconds(1000) < 10 * first + 2


def test_many_jobs_do_not_start_a_thread_each(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(Path("model.pb"), small_graph())
    text = "version: 1\nname: r\nsource: {frozen: model.pb}\noutputs: [y]\ntargets: {a: {}}\n"
    Path("recipe.yaml").write_text(text)
    most, start = [0], threading.Thread.start

    def counted(self: threading.Thread) -> None:
        start(self)
        most[0] = max(most[0], threading.active_count())

    monkeypatch.setattr(threading.Thread, "start", counted)
    assert run("build", "recipe.yaml", "-j", 100_000).code == 0
    assert most[0] < 100


@pytest.mark.slow
def test_zip_bomb_is_refused_before_decompression(run: Run) -> None:
    write_graph(Path("model.pb"), small_graph())
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f4", "fortran_order": False, "shape": (6, 4, 4, 2_500_000)}
    )
    with zipfile.ZipFile("data.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as member:
            member.write(head.getvalue())
            for _ in range(960):
                member.write(bytes(1_000_000))
        labels = io.BytesIO()
        np.save(labels, np.arange(6) % 3)
        archive.writestr("label.npy", labels.getvalue())
    Path("recipe.yaml").write_text("""\
version: 1
name: r
source: {frozen: model.pb}
inputs: {x: {dtype: float32, shape: [-1, 4, 4, 3]}}
outputs: [y]
validation: {data: data.npz, labels: label, metric: top1, max_drop: 1.0}
targets: {a: {}}
""")
    code = """\
import re, sys
from mobileprep.cli.main import main
code = main(sys.argv[1:])
# Not ru_maxrss, which a process has from the one that started it.
status = open("/proc/self/status").read()
print(re.search(r"VmHWM:\\s*([0-9]+) kB", status)[1], file=sys.stderr)
sys.exit(code)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "build", "recipe.yaml", "-j", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in REFUSED, done.stderr
    assert "data.npz" in done.stderr
    assert int(done.stderr.split()[-1]) < 600 << 10, "kilobytes, of 960,000"


def test_deleted_working_directory_is_reported() -> None:
    command = f"mkdir gone; cd gone; rmdir ../gone; '{sys.executable}' -m mobileprep "
    for verb in ("build", "summarize --in_graph=g.pb", "init g.pb", "cache info", "doctor"):
        done = subprocess.run(
            ["sh", "-c", command + verb], capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode in (0, 1, *REFUSED), done.stderr


def test_symlink_loop_in_the_output_directory_is_refused(run: Run) -> None:
    write_graph(Path("model.pb"), small_graph())
    text = "version: 1\nname: r\nsource: {frozen: model.pb}\noutputs: [y]\ntargets: {a: {}}\n"
    Path("recipe.yaml").write_text(text)
    Path("out").mkdir()
    Path("out/r").symlink_to("s")
    Path("out/s").symlink_to("r")
    result = run("build", "recipe.yaml")
    assert result.code in (0, *REFUSED), result.err
    Path("loop").symlink_to("loop")
    assert "loop" in refused(run, "build", "recipe.yaml", "--out=loop")
    assert "x" * 20 in refused(run, "build", "recipe.yaml", f"--out={'x' * 300}")


def test_large_fills_are_refused_before_allocation(run: Run) -> None:
    size = c("size", np.array([1 << 28], np.int32))
    fills = [node(f"f{i}", "Fill", "size zero") for i in range(6)]
    parts = " ".join(f.name for f in fills)
    graph = Graph(
        [size, c("zero", 1.0), *fills, c("axis", 0), node("y", "ConcatV2", f"{parts} axis", N=6)]
    )
    write_graph(Path("g.pb"), graph)
    assert "Fill" in refused(run, "run", "--graph=g.pb", "--fetch=y", "--memory=1GB")
    folded = run("transform", "--in_graph=g.pb", "--out_graph=o.pb", "--outputs=y",
                 "--transforms=fold_constants")  # fmt: skip
    assert folded.code in (0, *REFUSED)
    assert folded.code != 0 or Path("o.pb").stat().st_size < 10_000


def test_huge_range_is_refused(run: Run) -> None:
    ends = [c(x, i, dtype=np.int64) for x, i in (("from", 0), ("to", 1 << 60), ("step", 1))]
    endless = n("y", "Range", "from", "to", "step", Tidx=np.int64)
    write_graph(Path("g.pb"), Graph([*ends, endless]))
    assert "Range" in refused(run, "run", "--graph=g.pb", "--fetch=y")


def test_endless_labels_file_is_refused(run: Run) -> None:
    words = Path("words.txt")
    words.symlink_to("/dev/zero")
    write_graph(Path("g.pb"), Graph([p("x", np.float32, (2,)), node("y", "Neg", "x")]))
    command = ("run", "--graph=g.pb", "--feed=x=1,2", "--fetch=y", f"--labels={words}")
    assert "words.txt" in refused(run, *command)


def test_temporary_files_of_killed_builds_are_removed(run: Run) -> None:
    write_graph(Path("model.pb"), small_graph())
    text = "version: 1\nname: r\nsource: {frozen: model.pb}\noutputs: [y]\ntargets: {a: {}}\n"
    Path("recipe.yaml").write_text(text)
    code = """\
import functools, os, signal
replace = os.replace
def killed(*paths, **more):
    if "out" in str(paths[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(*paths, **more)
os.replace = functools.partial(killed)
from mobileprep.cli.main import main
main(["build", "recipe.yaml"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -9
    assert run("build", "recipe.yaml").code == 0
    hidden = [p for p in Path("out").rglob(".*") if p.is_file() and p.name != ".mobileprep.lock"]
    assert [p for p in hidden if not p.name.endswith(".lock")] == []
    temporary = Path("store").rglob("tmp/*")
    assert [p for p in temporary if p.is_file()] == []
