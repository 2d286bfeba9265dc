"""Messages and locations of schema errors in a recipe."""

from __future__ import annotations

import pytest

from mobileprep.recipe.schemas import recipe_schema
from mobileprep.recipe.validate import schema_problems
from mobileprep.recipe.yaml_tree import parse_yaml

HEAD = "version: 1\nname: digits\nsource: {frozen: model.pb}\noutputs: [y]\n"
TARGETS = "targets:\n  phone: {platform: android}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            HEAD + TARGETS + "output: [x]\n",
            "7:1 output: unknown key 'output'; did you mean 'outputs'?",
        ),
        (
            HEAD + "targets:\n  phone:\n    quantise: weights\n",
            "7:5 targets.phone.quantise: unknown key 'quantise'; did you mean 'quantize'?",
        ),
        (
            HEAD + "freeze: {zzz: 1}\n" + TARGETS,
            "5:10 freeze.zzz: unknown key 'zzz'; known here: clear_devices, moving_averages, ",
        ),
        (
            HEAD + "targets:\n  phone: {platform: andriod}\n",
            (
                "6:21 targets.phone.platform: expected one of android, ios, raspberry-pi, linux, "
                "generic, found 'andriod'; did you mean 'android'?"
            ),
        ),
        (
            HEAD + "targets:\n  phone: {quantize: weight}\n",
            (
                "6:21 targets.phone.quantize: expected one of none, weights, float16, bfloat16, "
                "round, nodes, auto, int4, int8, int16x8, found 'weight'; did you mean 'weights'?"
            ),
        ),
        (
            HEAD + "targets:\n  phone: {quantize: {minimum_size: 3}}\n",
            "6:11 targets.phone.quantize: the key 'mode' is missing; add 'mode: ...'",
        ),
        (
            HEAD + "targets:\n  phone: {quantize: {mode: round, num_step: 3}}\n",
            (
                "6:35 targets.phone.quantize.num_step: unknown key 'num_step'; "
                "did you mean 'num_steps'?"
            ),
        ),
        (
            HEAD + "targets:\n  phone: {quantize: {mode: round, num_steps: 0}}\n",
            "6:46 targets.phone.quantize.num_steps: must be at least 1",
        ),
        (
            HEAD + "targets:\n  phone: {sort: yes}\n",
            "6:17 targets.phone.sort: expected true or false, found the text 'yes'; write true",
        ),
        (
            HEAD + "targets:\n  phone: {registration: {tensorflow: 1.15}}\n",
            (
                "6:38 targets.phone.registration.tensorflow: expected text or a list, "
                'found the number 1.15; write "1.15" in quotes'
            ),
        ),
        (
            HEAD + "targets:\n  phone: {registration: {tensorflow: ['1.15', 2.21]}}\n",
            (
                "6:47 targets.phone.registration.tensorflow[1]: expected one of 1.15, 2.21, "
                'found the number 2.21; write "2.21" in quotes'
            ),
        ),
        (
            HEAD + "targets:\n  phone: {registration: {tensorflow: '2.1'}}\n",
            (
                "6:38 targets.phone.registration.tensorflow: expected one of 1.15, 2.21, "
                "found '2.1'; did you mean '2.21'?"
            ),
        ),
        (
            HEAD + "targets:\n  phone: {platform: android, abis: arm64-v8a}\n",
            (
                "6:36 targets.phone.abis: expected a list, found the text 'arm64-v8a'; "
                "write [arm64-v8a]"
            ),
        ),
        (
            HEAD + "targets:\n  phone: {platform: android, abis: [x86, x86]}\n",
            "6:42 targets.phone.abis[1]: 'x86' is listed twice; keep one of them",
        ),
        (
            HEAD + "targets:\n  phone: {platform: android, abis: []}\n",
            "6:30 targets.phone.abis: needs at least 1 item",
        ),
        (
            HEAD + "targets:\n  phone: 7\n",
            "6:10 targets.phone: expected a mapping, found the number 7",
        ),
        (
            HEAD + "targets:\n  'p/1': {}\n",
            (
                "6:3 targets.p/1: 'p/1' cannot be used here: a name starts with a letter or digit "
                "and has only letters, digits, '.', '_' and '-'"
            ),
        ),
        (
            HEAD + "targets:\n  ../up: {}\n",
            "6:3 targets['../up']: '../up' cannot be used here: a name starts with a letter",
        ),
        (
            HEAD + 'targets:\n  "phone\\n": {}\n',
            "6:3 targets['phone\\n']: 'phone\\n' cannot be used here: a name starts with a letter",
        ),
        (
            "version: 1\nname: -x\nsource: {frozen: m}\n" + TARGETS,
            "2:7 name: '-x' cannot be used here: a name starts with a letter or digit",
        ),
        (
            "version: 2\nname: x\nsource: {frozen: m}\n" + TARGETS,
            "1:10 version: expected 1, found the number 2",
        ),
        (
            "version: 1\nname: 2024\nsource: {frozen: m}\n" + TARGETS,
            '2:7 name: expected text, found the number 2024; write "2024" in quotes',
        ),
        (
            "name: x\nsource: {frozen: m}\n" + TARGETS,
            "1:1: the key 'version' is missing; add 'version: ...'",
        ),
        (
            "version: 1\nsource: {frozen: m}\n" + TARGETS,
            "1:1: the key 'name' is missing; add 'name: ...'",
        ),
        (
            HEAD + "inputs:\n  x: {dtype: float3}\n" + TARGETS,
            (
                "6:14 inputs.x.dtype: expected one of float32, float64, float16, bfloat16, int8, "
                "int16, int32, int64, uint8, uint16, uint32, uint64, bool, string, complex64, "
                "complex128, qint8, quint8, qint16, quint16, qint32, found 'float3'; "
                "did you mean 'float32'?"
            ),
        ),
        (
            HEAD + "inputs:\n  x: {shape: [1, -2]}\n" + TARGETS,
            "6:18 inputs.x.shape[1]: must be at least -1",
        ),
        (
            HEAD + "inputs:\n  x: {shape: [1, '2']}\n" + TARGETS,
            (
                "6:18 inputs.x.shape[1]: expected a whole number, found the text '2'; "
                "write 2 without quotes"
            ),
        ),
        (
            HEAD + "inputs:\n  x: {shape: [1, 2.5]}\n" + TARGETS,
            "6:18 inputs.x.shape[1]: expected a whole number, found the number 2.5",
        ),
        (
            HEAD + "inputs:\n  ^x: {}\n" + TARGETS,
            (
                "6:3 inputs['^x']: '^x' cannot be used here: a tensor is named as in the graph: "
                "node or node:1"
            ),
        ),
        (
            HEAD + "inputs: [x]\n" + TARGETS,
            "5:1 inputs: expected a mapping, found a list",
        ),
        (
            "version: 1\nname: x\nsource: {frozen: m}\noutputs: y\n" + TARGETS,
            "4:10 outputs: expected a list, found the text 'y'; write [y]",
        ),
        (
            "version: 1\nname: x\nsource: {frozen: m}\noutputs: {y: 1}\n" + TARGETS,
            "4:1 outputs: expected a list, found a mapping",
        ),
        (
            "version: 1\nname: x\nsource: {frozen: m}\noutputs: [a, b, a]\n" + TARGETS,
            "4:17 outputs[2]: 'a' is listed twice; keep one of them",
        ),
        (
            "version: 1\nname: x\nsource: {frozen: ''}\n" + TARGETS,
            "3:18 source.frozen: needs at least 1 character",
        ),
        (
            'version: 1\nname: x\nsource: {frozen: "a\\0b"}\n' + TARGETS,
            "3:18 source.frozen: 'a\\x00b' cannot be used here: a path has no control characters",
        ),
        (
            "version: 1\nname: x\nsource: {frozen: m, sha256: {m: 4f0c}}\n" + TARGETS,
            (
                "3:33 source.sha256.m: '4f0c' cannot be used here: a sha256 digest has 64 "
                "hexadecimal digits"
            ),
        ),
        (
            f"version: 1\nname: x\nsource: {{frozen: m, sha256: {{m: {'1' * 30}}}}}\n" + TARGETS,
            (
                f"3:33 source.sha256.m: expected text, found the number {'1' * 30}; "
                f'write "{"1" * 30}" in quotes'
            ),
        ),
        (
            HEAD + "validation: {data: d, max_drop: 1.5}\n" + TARGETS,
            "5:33 validation.max_drop: must be at most 1",
        ),
        (
            HEAD + "transforms: [{a: {}, b: {}}]\n" + TARGETS,
            "5:14 transforms[0]: may have at most 1 key",
        ),
        (
            HEAD + "transforms: [{}]\n" + TARGETS,
            "5:14 transforms[0]: needs at least 1 key",
        ),
        (
            HEAD + "transforms: [[a]]\n" + TARGETS,
            "5:14 transforms[0]: expected text or a mapping, found a list",
        ),
        (
            HEAD + "transforms: 5\n" + TARGETS,
            "5:13 transforms: expected a list or text, found the number 5",
        ),
        (
            HEAD + "transforms: [fold_constants: 5]\n" + TARGETS,
            "5:30 transforms[0].fold_constants: expected a mapping or a list, found the number 5",
        ),
        (
            HEAD + "targets: {}\n",
            "5:1 targets: needs at least 1 key",
        ),
        (
            HEAD + "targets:\n",
            "5:9 targets: expected a mapping, found nothing",
        ),
    ],
)
def test_problem_is_reported_with_its_location(problems, text, expected):
    assert any(line.startswith(expected) for line in problems(text)), problems(text)


def test_all_problems_are_reported_in_order(problems):
    text = (
        "version: 1\nnam: x\nsource: {frozen: 1}\noutputs: y\n"
        "targets:\n  a: {sort: no, platfrm: ios}\n  ' ': {}\n"
    )
    locations = [line.split(" ")[0].rstrip(":") for line in problems(text)]
    assert locations == ["1:1", "2:1", "3:18", "4:10", "6:13", "6:17", "7:3"]


def test_problem_without_our_message_has_a_location(source):
    tree = parse_yaml(source("a: 1\nb: 6\n"))
    schema = {"properties": {"b": {"multipleOf": 4}}}
    (problem,) = schema_problems(tree, schema)
    assert str(problem.place) == "recipe.yaml:2:4"
    assert "6 is not a multiple of 4" in problem.message


def test_schema_is_valid():
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(recipe_schema())


def _objects(schema, path="#"):
    """Yield every subschema with properties and its path."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield path, schema
        for key, child in schema.items():
            yield from _objects(child, f"{path}/{key}")
    elif isinstance(schema, list):
        for index, child in enumerate(schema):
            yield from _objects(child, f"{path}/{index}")


def test_schema_refuses_unknown_keys_and_describes_all_others():
    schema = recipe_schema()
    for path, described in _objects(schema):
        if path.endswith("/properties"):  # A key can also be called "properties".
            continue
        assert described.get("additionalProperties") is False, path
        for key, child in described["properties"].items():
            reference = child.get("$ref", "").rpartition("/")[2]
            assert child.get("description") or schema["$defs"][reference]["description"], key


def test_patterns_have_a_message_and_refuse_a_trailing_newline():
    patterns = [d for d in recipe_schema()["$defs"].values() if "pattern" in d]
    assert len(patterns) == 13
    for described in patterns:
        assert described["patternErrorMessage"]
        assert described["pattern"].endswith("$(?!\\n)")


@pytest.mark.parametrize(
    ("count", "message"), [(1, "may have at most 1 key"), (0, "may have at most 0 keys")]
)
def test_singular_and_plural_in_messages(source, count: int, message: str) -> None:
    root = parse_yaml(source("a: 1\nb: 2\n"))
    (problem,) = schema_problems(root, {"maxProperties": count})
    assert problem.message == message
