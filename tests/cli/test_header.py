"""The verb ``header``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.cli.main import main
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.targets.selective_registration import ops_and_kernels, registration_header
from tests.targets.graphs import network, node

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def a(tmp_path: Path) -> Path:
    write_graph(tmp_path / "a.pb", network())
    return tmp_path / "a.pb"


@pytest.fixture
def b(tmp_path: Path) -> Path:
    write_graph(tmp_path / "b.pbtxt", Graph([node("r", "Relu", T=DType.FLOAT)]), as_text=True)
    return tmp_path / "b.pbtxt"


def test_header_covers_all_graphs(a: Path, b: Path, capsys: Captured) -> None:
    assert main(["header", f"--graphs={a},{b}", "--tensorflow=1.15"]) == 0
    output = capsys.readouterr()
    both = [network(), Graph([node("r", "Relu", T=DType.FLOAT)])]
    assert output.out == registration_header(ops_and_kernels(both, "1.15"), "1.15")
    assert output.err == ""


@pytest.mark.parametrize(
    ("flags", "release"),
    [
        ([], "1.15"),
        (["--tensorflow", "2.21"], "2.21"),
        (["--tensorflow=2.21.0"], "2.21"),
        (["--tensorflow=1.15.5"], "1.15"),
    ],
)
def test_tensorflow_option_selects_the_release(
    a: Path, capsys: Captured, flags: list[str], release: str
) -> None:
    assert main(["header", "--graphs", str(a), *flags]) == 0
    out = capsys.readouterr().out
    assert out == registration_header(ops_and_kernels([network()], release), release)


@pytest.mark.parametrize("flag", ["--default_ops=", "--default-ops="])
def test_flags_accept_hyphens(a: Path, capsys: Captured, flag: str) -> None:
    assert main(["header", f"--graphs={a}", flag]) == 0
    assert '"RecvOp"' not in capsys.readouterr().out


def test_default_ops_all_registers_all_ops(a: Path, capsys: Captured) -> None:
    assert main(["header", f"--graphs={a}", "--default_ops=all"]) == 0
    assert "#define SHOULD_REGISTER_OP(op) true" in capsys.readouterr().out


def test_file_format_option_is_accepted(a: Path, b: Path) -> None:
    assert main(["header", f"--graphs={a}", "--proto_fileformat=rawproto"]) == 0
    assert main(["header", f"--graphs={b}", "--proto-fileformat", "textproto"]) == 0


def test_ops_list_is_registered_unchanged(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "ops.json"
    file.write_text(json.dumps([["Frobnicate", "FrobnicateOp<float>"], ["Bare", None]]))
    arguments = [f"--graphs={file}", "--proto_fileformat=ops_list", "--default_ops="]
    assert main(["header", *arguments]) == 0
    out = capsys.readouterr().out
    assert '\n"FrobnicateOp<float>",\n};' in out
    assert '     || isequal(op, "Bare")\n     || isequal(op, "Frobnicate")\n' in out


def test_node_without_kernel_causes_a_warning(tmp_path: Path, capsys: Captured) -> None:
    graph = Graph([*network().nodes, node("odd", "Relu", T=DType.STRING)])
    write_graph(tmp_path / "g.pb", graph)
    assert main(["header", f"--graphs={tmp_path / 'g.pb'}"]) == 0
    output = capsys.readouterr()
    assert "Relu" not in output.out
    assert "warning: TensorFlow 1.15 has no CPU kernel of op 'Relu' for T=string" in output.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "required: --graphs"),
        (["--graphs="], 2, "no graphs are named"),
        (["--graph=a.pb"], 2, "required: --graphs"),
        (["--graphs={a}", "--tensorflow=2.2"], 2, "did you mean '2.21'?"),
        (["--graphs={a}", "--default_ops=Foo"], 2, "'Foo' is not a pair"),
        (["--graphs={a}", "--proto_fileformat=json"], 2, "invalid choice"),
        (["--graphs={a}", "--frobnicate"], 2, "--frobnicate"),
        (["--graphs={a},absent.pb"], 4, "absent.pb"),
        (["--graphs={a}", "--proto_fileformat=ops_list"], 4, "a.pb"),
        (["--graphs={empty}"], 5, "holds no nodes"),
        (["--graphs={odd}"], 6, "has no op 'Frobnicate' (node 'f' of"),
    ],
)
def test_errors_have_messages_and_codes(
    a: Path, tmp_path: Path, capsys: Captured, arguments: list[str], code: int, message: str
) -> None:
    odd, empty = tmp_path / "odd.pb", tmp_path / "empty.pbtxt"
    write_graph(odd, Graph([node("f", "Frobnicate")]))
    empty.write_text("versions { producer: 27 }")
    filled = [text.format(a=a, odd=odd, empty=empty) for text in arguments]
    assert main(["header", *filled]) == code
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""
