"""Chains are parsed like in the original tool of TensorFlow 1.15."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections.abc import Callable
from typing import NamedTuple

import pytest

from mobileprep.errors import UsageError
from mobileprep.recipe.schemas import TransformSchemas
from mobileprep.recipe.steps import parse_chain, parse_transforms_flag

pytestmark = pytest.mark.reference

# A GraphDef of one node, a Placeholder called "x".
GRAPH = b"\n\x10\n\x01x\x12\x0bPlaceholder"

# "D" represents a transform that ignores unknown parameters.
CHAINS = [
    "",
    " \n",
    "D",
    "D D",
    " D\n\tD\v\f\r",
    "D()",
    "D()D()",
    "D(x=1)",
    "D( x=1)",
    "D(,x=1)",
    "D( ,x=1)",
    "D(x=1 y=2)",
    "D(x=1, y=2)",
    "D(x=1 ,y=2)",
    "D(x=1,,y=2)",
    "D(x=1,)",
    "D(x=1 )",
    "D( )",
    'D(x="1"y=2)',
    'D(x="p\\"q")',
    'D D(x="',
    'D(x="\\',
    'D(x="")',
    "D(x=)",
    'D(x=1")',
    "D(x=1')",
    "D(x=1\"')",
    "D(x=1'\")",
    "D, D",
    "D (x=1)",
    "D(x=1+2)",
    "D(x)",
    "D D(x",
    "D D(",
    "D D(x=",
    "D D(x=1",
    "D D(x=1, ",
    "D;",
    "D)",
    "D-D",
    "\\\nD",
    "(",
    "D(x=1))",
    "D(x = 1)",
    "D(x=1)D",
    "é",
    'D(x="é")',
    "D(é=1)",
    "nope D",
    "D nope(x=1)",
]

VALUES = ["y", "a-b.c/d_e", '"y"', '"y,z w"', '"p\\"q"', '"p\\q"', '"\n"', "y'", 'y"', '"\')("']


def _random_chains(count: int) -> list[str]:
    """Short strings of tokens that matter to the grammar."""
    generator = random.Random(20)
    pieces = ["D", "D", "(", ")", "=", ",", " ", '"', "'", "\\", "x=1", "\n", "-", "D(x=1"]
    return ["".join(generator.choices(pieces, k=generator.randint(2, 9))) for _ in range(count)]


class Progress(NamedTuple):
    """The number of transforms that started, and where parsing or lookup stopped."""

    started: int
    stopped_at: str


@pytest.fixture(scope="module")
def run(original, tmp_path_factory) -> Callable[[str], tuple[str, bytes]]:
    """Run the original on a chain; return its messages and its graph."""
    folder = tmp_path_factory.mktemp("chain")
    graph, out = folder / "in.pb", folder / "out.pb"
    graph.write_bytes(GRAPH)

    def run(chain: str) -> tuple[str, bytes]:
        flags = [f"--in_graph={graph}", f"--out_graph={out}", "--inputs=x", "--outputs=x"]
        out.unlink(missing_ok=True)
        process = subprocess.run(
            [str(original / "transform_graph"), *flags, f"--transforms={chain}"],
            capture_output=True,
            check=False,
            timeout=60,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"},  # its progress is read
        )
        return process.stderr.decode(), out.read_bytes() if out.exists() else b""

    return run


def _original_progress(messages: str) -> Progress:
    started = messages.count("Applying remove_device")
    looking = re.search(r"Looking for .*?, but found (.*)\n\Z", messages, re.DOTALL)
    if looking:
        return Progress(started, looking[1])
    unknown = re.search("Transform '(.*)' not recognized", messages)
    return Progress(started, unknown[1] if unknown else "")


def _own_progress(text: str) -> Progress:
    chain = parse_chain(text)
    if chain.fault is not None:
        quote = text.startswith('"', chain.fault.offset) and "closing" in chain.fault.message
        return Progress(0, text[chain.fault.offset + quote :])
    for started, call in enumerate(chain.calls):
        if call.name != "remove_device":
            return Progress(started, call.name)
    return Progress(len(chain.calls), "")


@pytest.mark.parametrize("chain", [*CHAINS, *_random_chains(150)])
def test_chains_are_parsed_like_the_original(run, chain):
    text = chain.replace("D", "remove_device")
    messages, _ = run(text)
    theirs = _original_progress(messages)
    before = text.removesuffix(theirs.stopped_at)
    if "transform name" in messages and re.search(r"\w\s+\(\Z", f"{before}{theirs.stopped_at[:1]}"):
        # Some published chains have a space here, which we accept with a warning.
        assert parse_chain(f"{before}(x=1)").calls[-1].spaced
        return
    assert _own_progress(text) == theirs


@pytest.mark.parametrize("value", VALUES)
def test_values_match_the_original(run, value):
    text = f"rename_op(old_op_name=Placeholder, new_op_name={value})"
    ((_, new),) = [call.arguments for call in parse_chain(text).calls]
    messages, graph = run(text)
    assert "seconds" in messages
    op = new.value.encode()
    assert (
        graph == b"\n" + bytes([len(op) + 5]) + b"\n\x01x\x12" + bytes([len(op)]) + op + b"\x12\x00"
    )


NUMBERS = ["1", "007", "-0", " 5 ", " -5", "+5", "5.0", "- 5", "5 x", "", "1e3", "0x10", "1_0"]
NUMBERS += ["2147483647", "2147483648", "-2147483648", "-2147483649", "99999999999"]
FLOATS = ["1", "1e", "abc", "infinity", " 1.5 ", "+.5", "1.", ".", "- 1", "0x", "", "1_0", "0x1p3"]
FLOATS += ["1e5", "1e+5", "0x-1", "0X1f", "-0x1f", "0x1.8", "1\t", "1f", "+ 1", "\n1", "-.5e-3"]
BOOLEANS = ["true", "false", "1", "0", "True", "yes", "", " true"]
# quantize_weights and quantize_nodes parse their numbers first.
TYPED = [
    *[("quantize_weights", "minimum_size", value) for value in NUMBERS],
    *[("quantize_nodes", "input_min", value) for value in FLOATS],
    *[("fold_constants", "clear_output_shapes", value) for value in BOOLEANS],
    *[("remove_device", "ignore_errors", value) for value in (*BOOLEANS, "TRUE", "fAlse")],
]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> TransformSchemas:
    """Schemas of the types that the original parses, with its 32-bit integers."""
    folder = tmp_path_factory.mktemp("schemas")
    size = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
    properties = {
        "quantize_weights": {"minimum_size": size},
        "quantize_nodes": {"input_min": {"type": "number"}, "input_max": {"type": "number"}},
        "fold_constants": {"clear_output_shapes": {"type": "boolean"}},
        "remove_device": {},
    }
    for name, options in properties.items():
        (folder / f"{name}.json").write_text(json.dumps({"properties": options}))
    return TransformSchemas(folder)


@pytest.mark.parametrize(("transform", "parameter", "value"), TYPED)
def test_typed_values_match_the_original(run, schemas, transform, parameter, value):
    more = ", input_max=1" if transform == "quantize_nodes" else ""
    text = f'{transform}({parameter}="{value}"{more})'
    messages, _ = run(text)
    refused = "Couldn't interpret" in messages or "should be true or false" in messages
    if refused:
        with pytest.raises(UsageError):
            parse_transforms_flag(text, schemas)
    else:
        parse_transforms_flag(text, schemas)
