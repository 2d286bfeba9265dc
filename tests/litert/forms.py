"""Measure which forms of operators (rank, broadcasting, dtype) a LiteRT release runs.

    python -m tests.litert.forms build DIR
    python tests/litert/forms.py run DIR RESULT.json [--plain]

``build`` writes one file for each form. ``run`` needs only numpy and an interpreter
(``ai_edge_litert``, ``tflite_runtime``, or ``tensorflow``; ``LITERT_MODULE`` names another), so it
also runs in the environment of an old release. Files run in child processes, since some forms
abort. ``--plain`` disables XNNPACK.
"""

# ruff: noqa: T201, BLE001, C901

from __future__ import annotations

import importlib
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

BINARY = {
    **dict.fromkeys(("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"), "f32 i32 i64 i8 i16"),
    **dict.fromkeys(("DIV", "FLOOR_DIV", "POW"), "f32 i32"),
    "FLOOR_MOD": "f32 i32 i64",
    "SQUARED_DIFFERENCE": "f32 i32 i8",
    **dict.fromkeys(("LOGICAL_AND", "LOGICAL_OR"), "bool"),
    **dict.fromkeys(("BITWISE_XOR", "RIGHT_SHIFT"), "i32"),
    "ATAN2": "f32",
    "PRELU": "f32 i8",
}
BOOLEAN = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
BINARY |= dict.fromkeys(BOOLEAN, "f32 i32 i64 i8")
TABLES = {"MAXIMUM": "MaximumMinimum", "MINIMUM": "MaximumMinimum", "ATAN2": "ATan2"}
FLOATS = ("SIN", "COS", "FLOOR", "CEIL", "ROUND", "SQUARE", "NEG", "SIGN", "ZEROS_LIKE")
UNARY = {
    **dict.fromkeys((*FLOATS, "RELU_N1_TO_1"), "f32"),
    **dict.fromkeys(("ELU", "EXP", "LOG", "SQRT", "RSQRT", "GELU", "HARD_SWISH"), "f32 i8"),
    **dict.fromkeys(("LOGISTIC", "TANH", "RELU", "RELU6", "LEAKY_RELU", "SOFTMAX"), "f32 i8 i16"),
    **dict.fromkeys(("LOG_SOFTMAX", "L2_NORMALIZATION"), "f32 i8"),
    "ABS": "f32 i8 i16 i32",
    "LOGICAL_NOT": "bool",
}
# Output scale and zero point that kernels require.
SCALES = {
    **dict.fromkeys((("LOGISTIC", "i8"), ("SOFTMAX", "i8")), (1 / 256, -128)),
    **dict.fromkeys((("TANH", "i8"), ("L2_NORMALIZATION", "i8")), (1 / 128, 0)),
    **dict.fromkeys((("LOGISTIC", "i16"), ("SOFTMAX", "i16"), ("TANH", "i16")), (1 / 32768, 0)),
    ("LOG_SOFTMAX", "i8"): (16 / 256, 127),
}
NUMPY = {
    "f32": np.float32,
    "i32": np.int32,
    "i64": np.int64,
    "i8": np.int8,
    "i16": np.int16,
    "u8": np.uint8,
    "bool": np.bool_,
}
_MODULES = (
    *filter(None, [os.environ.get("LITERT_MODULE")]),
    "ai_edge_litert.interpreter",
    "tflite_runtime.interpreter",
    "tensorflow.lite.python.interpreter",
)
RANKS = (0, 1, 2, 3, 4, 5, 6, 8)
SIZES = (2, 3, 2, 3, 2, 2, 3, 2)


def build(target: Path, is_included: Callable[[str], bool] = lambda _: True) -> None:
    """Write a file for each form whose label, such as ``ADD f32 5 mixed``, is included."""
    from mobileprep.formats.dtypes import dtype_from_numpy
    from mobileprep.formats.tflite.layout import layout
    from mobileprep.formats.tflite.records import Options, Quantization
    from mobileprep.formats.tflite.writer import model_bytes
    from mobileprep.litert.assemble import assembled
    from mobileprep.litert.program import Op, Port, Program, Value

    def value(name: str, shape: Any, dtype: str, data: Any = None) -> Value:
        kind = dtype_from_numpy(np.dtype(NUMPY[dtype]))
        assert kind is not None
        details = None
        if dtype in ("i8", "i16"):
            scale = {"i8": 1 / 64, "i16": 1 / 8192}[dtype]
            details = Quantization(np.float32([scale]), np.int64([0]))
        array = None if data is None else np.asarray(data, NUMPY[dtype])
        shape = tuple(shape) if array is None else array.shape
        return Value(name, kind, shape, array, details)

    def table(code: str) -> str:
        name = "".join(part.capitalize() for part in code.split("_")) + "Options"
        return name if name in layout().tables else ""

    target.mkdir(parents=True, exist_ok=True)

    def case(label: str, inputs: Any, outputs: Any, kind: str = "", **options: Any) -> None:
        if not is_included(label):
            return
        code = label.partition(" ")[0]
        values, fed = [], []
        for i, entry in enumerate(inputs):
            shape, own, data = (*entry, None)[:3]
            values.append(value(f"x{i}", shape, own, data))
            if data is None:
                fed.append(values[-1])
        results = [value(f"y{i}", shape, own) for i, (shape, own) in enumerate(outputs)]
        scale = SCALES.get((code, outputs[0][1]))
        if scale is not None:
            details = Quantization(np.float32([scale[0]]), np.int64([scale[1]]))
            results = [replace(results[0], quantization=details)]
        name = (f"{kind}Options" if kind else "") or table(code)
        op = Op(code, tuple(values), tuple(results), Options(name, options) if name else None)
        program = Program(
            tuple(Port(v.name, v) for v in fed), tuple(Port(v.name, v) for v in results), (op,)
        )
        (target / f"{label.replace(' ', '__')}.tflite").write_bytes(model_bytes(assembled(program)))

    for rank in RANKS:
        full = SIZES[:rank]
        odd = tuple(n if i % 2 else 1 for i, n in enumerate(full))
        even = tuple(1 if i % 2 else n for i, n in enumerate(full))
        forms = {"same": (full, full), "scalar": (full, ()), "channel": (full, full[-1:])}
        if rank > 1:
            forms |= {"mixed": (full, odd), "swapped": (odd, full), "both": (even, odd)}
        for code, dtypes in BINARY.items():
            for dtype in dtypes.split():
                out = "bool" if code in BOOLEAN else dtype
                any_scale = code in ("ADD", "SUB") and dtype == "i16"
                options = {"pot_scale_int16": False} if any_scale else {}
                for form, (a, b) in forms.items():
                    ends = [(a, dtype), (b, dtype)], [(np.broadcast_shapes(a, b), out)]
                    if code != "PRELU" or form in ("same", "channel"):
                        case(
                            f"{code} {dtype} {rank} {form}", *ends, TABLES.get(code, ""), **options
                        )
        for dtype in ("f32", "i32", "i64", "i8", "i16", "bool"):
            for form, (a, b) in forms.items():
                shape = np.broadcast_shapes(a, b)
                case(
                    f"SELECT_V2 {dtype} {rank} {form}",
                    [(a, "bool"), (b, dtype), (b, dtype)],
                    [(shape, dtype)],
                    "SelectV2",
                )
            case(
                f"SELECT {dtype} {rank} same",
                [(full, "bool"), (full, dtype), (full, dtype)],
                [(full, dtype)],
            )
            if rank:
                case(
                    f"SELECT {dtype} {rank} first",
                    [(full[:1], "bool"), (full, dtype), (full, dtype)],
                    [(full, dtype)],
                )
        for code, dtypes in UNARY.items():
            for dtype in dtypes.split():
                case(f"{code} {dtype} {rank} one", [(full, dtype)], [(full, dtype)])
        for a, b in (("f32", "i32"), ("i32", "f32"), ("bool", "f32"), ("i64", "i32")):
            case(f"CAST {a} {rank} to_{b}", [(full, a)], [(full, b)])
        for dtype in ("i8", "i16"):
            case(f"QUANTIZE f32 {rank} to_{dtype}", [(full, "f32")], [(full, dtype)])
            case(f"DEQUANTIZE {dtype} {rank} one", [(full, dtype)], [(full, "f32")])
        case(f"ADD_N f32 {rank} three", [(full, "f32")] * 3, [(full, "f32")], "AddN")
        ints = lambda x: ((), "i32", np.array(x, np.int32))  # noqa: E731
        for dtype in ("f32", "i32", "i64", "i8", "i16", "bool"):
            _add_movements(case, ints, dtype, rank, full)
        if rank > 1:
            a, b = (*full[:-2], 2, 3), (*full[:-2], 3, 4)
            for dtype in ("f32", "i8", "i16"):
                product = (*full[:-2], 2, 4)
                case(
                    f"BATCH_MATMUL {dtype} {rank} same",
                    [(a, dtype), (b, dtype)],
                    [(product, dtype)],
                    "BatchMatMul",
                )
                if rank > 2:
                    one = (*odd[:-2], 3, 4)
                    case(
                        f"BATCH_MATMUL {dtype} {rank} mixed",
                        [(a, dtype), (one, dtype)],
                        [(product, dtype)],
                        "BatchMatMul",
                    )
                    case(
                        f"BATCH_MATMUL {dtype} {rank} matrix",
                        [(a, dtype), ((3, 4), dtype)],
                        [(product, dtype)],
                        "BatchMatMul",
                    )


def _add_movements(case: Any, ints: Any, dtype: str, rank: int, full: Any) -> None:
    def add(label: str, *args: Any, **options: Any) -> None:
        code, form = label.split()
        case(f"{code} {dtype} {rank} {form}", *args, **options)

    x = (full, dtype)
    if rank:
        last = rank - 1
        for axis in sorted({0, last}):
            reduced = tuple(n for i, n in enumerate(full) if i != axis)
            codes = {
                "bool": "REDUCE_ANY REDUCE_ALL",
                "f32": "MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD",
            }
            for code in codes.get(dtype, "MEAN SUM REDUCE_MAX REDUCE_MIN").split():
                add(f"{code} axis{axis}", [x, ints([axis])], [(reduced, dtype)], "Reducer")
            if dtype != "bool":
                add(
                    f"ARG_MAX axis{axis}",
                    [x, ints(axis)],
                    [(reduced, "i32")],
                    "ArgMax",
                    output_type="INT32",
                )
            twice = tuple(2 * n if i == axis else n for i, n in enumerate(full))
            add(f"CONCATENATION axis{axis}", [x, x], [(twice, dtype)], axis=axis)
            packed = (*full[:axis], 2, *full[axis:])
            add(f"PACK axis{axis}", [x, x], [(packed, dtype)], axis=axis, values_count=2)
            add(
                f"UNPACK axis{axis}",
                [x],
                [(reduced, dtype)] * full[axis],
                axis=axis,
                num=full[axis],
            )
            one = tuple(1 if i == axis else n for i, n in enumerate(full))
            add(
                f"SPLIT axis{axis}",
                [ints(axis), x],
                [(one, dtype)] * full[axis],
                num_splits=full[axis],
            )
            add(
                f"SPLIT_V axis{axis}",
                [x, ints([1] * full[axis]), ints(axis)],
                [(one, dtype)] * full[axis],
                num_splits=full[axis],
            )
            gathered = tuple(2 if i == axis else n for i, n in enumerate(full))
            add(f"GATHER axis{axis}", [x, ints([1, 0])], [(gathered, dtype)], axis=axis)
            add(f"REVERSE_V2 axis{axis}", [x, ints([axis])], [(full, dtype)])
            if dtype in ("f32", "i32", "i64"):
                add(f"CUMSUM axis{axis}", [x, ints([axis])], [(full, dtype)], "Cumsum")
            add(
                f"ONE_HOT axis{axis}",
                [(full, "i32"), ints(3), ((), dtype, 1), ((), dtype, 0)],
                [((*full[:axis], 3, *full[axis:]), dtype)],
                axis=axis,
            )
        zero = [0] * rank
        pads = np.array([[1, 0]] + [[0, 0]] * (rank - 2) + [[0, 1]] * (rank > 1))
        bigger = tuple(int(n + a + b) for n, (a, b) in zip(full, pads, strict=True))
        add("PAD ends", [x, ints(pads)], [(bigger, dtype)])
        if dtype not in ("bool",):
            add("PADV2 ends", [x, ints(pads), ((), dtype, 1)], [(bigger, dtype)], "PadV2")
        add("MIRROR_PAD ends", [x, ints(pads)], [(bigger, dtype)], mode="REFLECT")
        begin, size = [*zero[:-1], 1], [*full[:-1], 1]
        add("SLICE last", [x, ints(begin), ints(size)], [(size, dtype)])
        add("STRIDED_SLICE last", [x, ints(begin), ints(full), ints([1] * rank)], [(size, dtype)])
        add(
            "STRIDED_SLICE shrink",
            [x, ints(begin), ints(full), ints([1] * rank)],
            [(size[1:], dtype)],
            shrink_axis_mask=1,
        )
        axes = [*zero]
        axes[0::2], axes[1::2] = range((rank + 1) // 2), range((rank + 1) // 2, rank)
        add("TRANSPOSE mixed", [x, ints(axes)], [([full[i] for i in axes], dtype)])
        add("TILE twice", [x, ints([2] + [1] * last)], [((2 * full[0], *full[1:]), dtype)])
        odd = tuple(n if i % 2 else 1 for i, n in enumerate(full))
        add("BROADCAST_TO mixed", [(odd, dtype), ints(full)], [(full, dtype)])
        add("BROADCAST_TO scalar", [((), dtype), ints(full)], [(full, dtype)])
        add("WHERE one", [x], [((int(np.prod(full)), rank), "i64")])
        add("GATHER_ND whole", [x, ints([zero, zero])], [((2,), dtype)])
        add("SCATTER_ND first", [ints([[1]]), ((1, *full[1:]), dtype), ints(full)], [(full, dtype)])
        if dtype != "bool":
            add(
                "TOPK_V2 one",
                [x, ints(1)],
                [((*full[:-1], 1), dtype), ((*full[:-1], 1), "i32")],
                "TopKV2",
            )
        if dtype in ("f32", "i8", "i16"):
            weights = np.ones((4, full[-1]), NUMPY[dtype if dtype == "f32" else "i8"])
            add(
                "FULLY_CONNECTED keep",
                [x, ((), "f32" if dtype == "f32" else "i8", weights), None][:2],
                [((*full[:-1], 4), dtype)],
                keep_num_dims=True,
            )
        if rank > 1:
            add("EXPAND_DIMS first", [x, ints(0)], [((1, *full), dtype)])
            add("MATRIX_DIAG one", [x], [((*full, full[-1]), dtype)])
            add(
                "DYNAMIC_UPDATE_SLICE first",
                [x, ((1, *full[1:]), dtype), ints([1, *zero[1:]])],
                [(full, dtype)],
            )
            add(
                "REVERSE_SEQUENCE one",
                [x, ints([1] * full[0])],
                [(full, dtype)],
                seq_dim=1,
                batch_dim=0,
            )
    add("SHAPE one", [x], [((rank,), "i32")], out_type="INT32")
    add("RESHAPE flat", [x, ints([-1])], [((int(np.prod(full)),), dtype)])
    add("FILL one", [ints(np.array(full, np.int32)), ((), dtype)], [(full, dtype)])


def run(source: Path, result: Path, *, plain: bool) -> None:
    """Run all files of a directory, and write their outcomes by label."""
    interpreter, kind = _interpreter()
    results: dict[str, str] = {}
    paths = sorted(source.glob("*.tflite"))
    for path, outcome in _outcomes(interpreter, kind, paths, plain=plain):
        results[path.stem.replace("__", " ")] = outcome
    result.write_text(json.dumps(results, indent=0))
    print(len(results), sum(r.startswith("ok") for r in results.values()), "run")


def _interpreter() -> tuple[Any, Any]:
    for name in _MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return module.Interpreter, module.OpResolverType
    sys.exit(f"none of {_MODULES} is installed")


def _outcomes(
    interpreter: Any, kind: Any, paths: list[Path], *, plain: bool
) -> Iterator[tuple[Path, str]]:
    """Run files in a child process, and start a new one when a file aborts it."""
    while paths:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            for path in paths:
                try:
                    outcome = _outcome(interpreter, kind, path, plain=plain)
                except BaseException as error:
                    outcome = f"error {error}".replace("\n", " ")[:200]
                os.write(write, f"{outcome}\n".encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as stream:
            outcomes = stream.read().decode().splitlines()
        status = os.waitpid(pid, 0)[1]
        yield from zip(paths, outcomes, strict=False)
        paths = paths[len(outcomes) :]
        if paths:
            yield paths[0], f"abort {status}"
            paths = paths[1:]


def _outcome(interpreter: Any, kind: Any, path: Path, *, plain: bool) -> str:
    resolver = kind.BUILTIN_WITHOUT_DEFAULT_DELEGATES if plain else kind.AUTO
    model = interpreter(model_path=str(path), experimental_op_resolver_type=resolver)
    model.allocate_tensors()
    for number, entry in enumerate(model.get_input_details()):
        rng = np.random.RandomState(number)
        array = rng.randint(1, 60, entry["shape"])
        if entry["dtype"] == np.bool_:
            array = array > 30
        model.set_tensor(entry["index"], np.asarray(array, entry["dtype"]))
    model.invoke()
    sums = []
    for entry in model.get_output_details():
        array = np.array(model.get_tensor(entry["index"]))
        shown: int | str = zlib.crc32(array.tobytes())
        if array.dtype == np.float32:
            weights = np.arange(array.size).reshape(array.shape) % 17
            shown = f"{float((array.astype(np.float64) * weights).sum()):.4g}"
        sums.append(f"{'x'.join(map(str, array.shape))}:{shown}")
    return "ok " + " ".join(sums)


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(Path(sys.argv[2]))
    else:
        run(Path(sys.argv[2]), Path(sys.argv[3]), plain="--plain" in sys.argv)
