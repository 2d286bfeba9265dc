"""Generated app code; the reference tests compile it."""

from __future__ import annotations

import ast
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from mobileprep.errors import InternalError, InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.targets.integration.render import (
    OF_LITERT,
    OF_TENSORFLOW,
    AppTensor,
    Images,
    Language,
    Stream,
    app_tensors,
    integration_code,
)
from mobileprep.targets.integration.templating import environment
from mobileprep.targets.integration.texts import (
    c_text,
    camel,
    dims_text,
    float_text,
    java_text,
    kotlin_text,
    pascal,
    snake,
    upper,
    words_of,
)
from tests.building.stages.jobs import classifier
from tests.targets.app_models import HOSTILE, app_model, hostile_model, lite_model

HARMLESS = [f"n{i}" for i in range(len(HOSTILE))]


@pytest.mark.parametrize("language", OF_TENSORFLOW)
def test_code_contains_the_values_of_the_model(language: Language) -> None:
    text = "".join(integration_code(app_model(), language).values())
    for needed in ("digits.pb", "digits_labels.txt", '"logits/y"', "init_all_tables", "103.5f"):
        assert needed in text
    for threads in ("set_intra_op_parallelism_threads(2)", "set_inter_op_parallelism_threads(1)"):
        assert text.count(threads) == (language in ("cpp", "objc"))


@pytest.mark.parametrize("language", OF_TENSORFLOW)
def test_files_are_in_the_directories_of_their_language(language: Language) -> None:
    cpp = {"cpp/Classifier.h", "cpp/Classifier.cc"}
    expected = {
        "java": {"java/org/example/app/Classifier.java"},
        "kotlin": {"kotlin/org/example/app/Classifier.kt"},
        "cpp": cpp,
        "objc": {*cpp, "objc/ClassifierObjC.h", "objc/ClassifierObjC.mm"},
    }
    assert integration_code(app_model(), language).keys() == expected[language]


@pytest.mark.parametrize("language", OF_TENSORFLOW)
def test_hostile_names_add_no_lines_quotes_or_braces(language: Language) -> None:
    plain = hostile_model(HARMLESS)
    expected = "".join(integration_code(plain, language).values())
    code = "".join(integration_code(hostile_model(), language).values())
    assert code.isascii()
    for mark in '"\n{':
        assert code.count(mark) == expected.count(mark)


@pytest.mark.parametrize(
    ("channels", "written"),
    [("rgb", "rgb[0]"), ("bgr", "rgb[2]"), ("grayscale", "(luminance - 1.0f) / 2.0f")],
)
def test_channels_have_the_order_of_the_network(channels: str, written: str) -> None:
    count = 1 if channels == "grayscale" else 3
    pictures = Images("image", channels, (1.0,) * count, (2.0,) * count)  # type: ignore[arg-type]
    text = integration_code(app_model(images=pictures), "cpp")["cpp/Classifier.cc"]
    values = [line for line in text.splitlines() if line.lstrip().startswith("*values++")]
    assert len(values) == count
    assert written in values[0]


def test_image_bytes_are_rounded() -> None:
    inputs = (AppTensor("image", DType.UINT8, (1, 8, 8, 3)),)
    text = "".join(integration_code(app_model(inputs=inputs), "cpp").values())
    assert "std::nearbyint((rgb[2] - 103.5f) / 1.0f)" in text


def test_other_dtypes_have_no_image_code() -> None:
    inputs = (AppTensor("image", DType.INT32, (1, 8, 8, 3)),)
    text = "".join(integration_code(app_model(inputs=inputs), "java").values())
    assert "imageValues" not in text


@pytest.mark.parametrize(
    ("dtype", "language"),
    [(DType.STRING, "java"), (DType.HALF, "kotlin"), (DType.STRING, "objc")],
)
def test_unsupported_dtype_is_refused(dtype: DType, language: Language) -> None:
    model = app_model(outputs=(AppTensor("words", dtype, (1,)),))
    with pytest.raises(UnsupportedError, match="'words'"):
        integration_code(model, language)
    assert "DT_" in integration_code(model, "cpp")["cpp/Classifier.h"]


def test_model_without_inputs_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="inputs and outputs") as failure:
        integration_code(app_model(inputs=()), "cpp")
    assert "recipe" in failure.value.hint


def test_unescaped_strings_are_refused() -> None:
    template = environment().from_string("{{ name }}")
    with pytest.raises(InternalError, match="without a filter"):
        template.render(name="x; evil()")


def test_missing_jinja_is_reported_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UnsupportedError, match="Jinja") as failure:
        integration_code(app_model(), "cpp")
    assert failure.value.hint == "pip install 'mobileprep[integration]'"


@pytest.mark.parametrize("language", OF_LITERT)
def test_litert_code_contains_the_values_of_the_model(language: Language) -> None:
    text = "".join(integration_code(lite_model(), language).values())
    number = "103.5" if language == "swift" else "103.5f"
    for needed in ("digits.tflite", "digits_labels.txt", number):
        assert needed in text
    assert "TensorFlowInferenceInterface" not in text
    assert re.search(r"threadCount = 2|hreads\(.*2\)", text)


@pytest.mark.parametrize("language", OF_LITERT)
def test_litert_code_of_a_stream_has_a_reset(language: Language) -> None:
    text = "".join(integration_code(lite_model(stream=Stream(4, (24, 16))), language).values())
    assert re.search(r"\breset\(\)", text, re.IGNORECASE)
    assert "takes the next 4 time steps" in text
    plain = "".join(integration_code(lite_model(), language).values())
    assert "time step" not in plain


def test_litert_files_are_in_the_directories_of_their_language() -> None:
    files = {language: set(integration_code(lite_model(), language)) for language in OF_LITERT}
    assert files == {
        "java": {"java/org/example/app/Classifier.java"},
        "kotlin": {"kotlin/org/example/app/Classifier.kt"},
        "cpp": {"cpp/Classifier.h", "cpp/Classifier.cc"},
        "swift": {"swift/Classifier.swift"},
    }


def test_litert_code_decrypts_encrypted_models() -> None:
    model = lite_model(encrypted=True, file="digits.tflite.enc")
    java = "java/org/example/app/EncryptedModel.java"
    decrypting = {
        "java": {java},
        "kotlin": {java},
        "cpp": {"cpp/EncryptedModel.h", "cpp/EncryptedModel.cc"},
        "swift": {"swift/EncryptedModel.swift"},
    }
    loads = {
        "java": "new Interpreter(decrypted(assets, key), options)",
        "kotlin": "Interpreter(decrypted(assets, key), options)",
        "cpp": "TfLiteModelCreate(loaded->content_.data(), loaded->content_.size())",
        "swift": "Interpreter(modelData: model, options: options, delegates: delegates)",
    }
    for language in OF_LITERT:
        files = integration_code(model, language)
        assert (
            files.keys() - integration_code(lite_model(), language).keys() == decrypting[language]
        )
        text = "".join(files.values())
        assert loads[language] in text
        assert "tensorflow/core" not in text


@pytest.mark.parametrize("kind", [DType.UINT8, DType.INT16])
@pytest.mark.parametrize("language", OF_LITERT)
def test_quantized_tensors_have_float_and_raw_accessors(language: Language, kind: DType) -> None:
    inputs = (AppTensor("image", DType.FLOAT, (1, 2, 1, 3), kind),)
    outputs = (AppTensor("logits/y", DType.FLOAT, (1, 10), kind),)
    text = "".join(integration_code(lite_model(inputs=inputs, outputs=outputs), language).values())
    element = {
        "java": {DType.UINT8: "byte[]", DType.INT16: "short[]"},
        "kotlin": {DType.UINT8: "ByteArray", DType.INT16: "ShortArray"},
        "cpp": {DType.UINT8: "<std::uint8_t>", DType.INT16: "<std::int16_t>"},
        "swift": {DType.UINT8: "[UInt8]", DType.INT16: "[Int16]"},
    }[language][kind]  # type: ignore[index]
    for method in ("feedImage", "fetchY", "quantizedY", "imageIntegers"):
        assert re.search(method, text, re.IGNORECASE)
    assert element in text


def test_int8_in_swift_is_refused() -> None:
    for tensor in (AppTensor("x", DType.FLOAT, (1,), DType.INT8), AppTensor("x", DType.INT8, (1,))):
        with pytest.raises(UnsupportedError, match="cannot access int8 tensors") as failure:
            integration_code(lite_model(outputs=(tensor,)), "swift")
        assert "uint8" in failure.value.hint
        assert integration_code(lite_model(outputs=(tensor,)), "java")


@pytest.mark.parametrize("language", OF_LITERT)
def test_hostile_names_add_no_lines_or_quotes_to_litert_code(language: Language) -> None:
    plain, hostile = (
        structs.replace(hostile_model(names), artifact="tflite", init_ops=())
        for names in (HARMLESS, HOSTILE)
    )
    expected = "".join(integration_code(plain, language).values())
    code = "".join(integration_code(hostile, language).values())
    assert code.isascii()
    assert code.count("\n") == expected.count("\n")
    # Escapes of Swift contain braces.
    assert code.count('"') == expected.count('"')
    assert "\\(" not in code


def test_unsupported_languages_and_dtypes_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no interface in Swift"):
        integration_code(app_model(), "swift")
    with pytest.raises(UnsupportedError, match="no code for LiteRT"):
        integration_code(lite_model(), "objc")
    with pytest.raises(UnsupportedError, match="takes no double"):
        integration_code(app_model(artifact="tflite"), "swift")


def test_dtypes_and_shapes_come_from_the_graph_and_recipe() -> None:
    inputs, outputs = app_tensors(classifier(), ["x"], ["y:0"], {"x": (5, -1)})
    assert inputs == (AppTensor("x", DType.FLOAT, (5, 3)),)
    assert outputs == (AppTensor("y:0", DType.FLOAT, (5, 3)),)


@pytest.mark.parametrize(("inputs", "outputs"), [(["no"], ["y"]), (["x"], ["no"])])
def test_unknown_name_is_refused(inputs: list[str], outputs: list[str]) -> None:
    with pytest.raises(InvalidGraphError, match="'no' is not in the graph"):
        app_tensors(classifier(), inputs, outputs, {})


@pytest.mark.parametrize(
    ("shape", "count", "row"),
    [
        ((2, 3), 6, None),
        ((), 1, None),
        ((-1, 2, 3), None, 6),
        ((-1, -1), None, None),
        ((-1, 0), None, None),
        (None, None, None),
        ((1 << 16, 1 << 16), None, None),
    ],
)
def test_elements_are_counted_if_sizes_are_known(
    shape: tuple[int, ...] | None, count: int | None, row: int | None
) -> None:
    tensor = AppTensor("x", DType.FLOAT, shape)
    assert (tensor.count, tensor.row) == (count, row)


ANY_TEXT = st.text() | st.sampled_from(HOSTILE)


@given(ANY_TEXT)
def test_c_literals_preserve_the_bytes(text: str) -> None:
    literal = c_text(text)
    # Python reads octal escapes of three digits as C does.
    assert ast.literal_eval(f"b{literal}") == text.encode()
    assert "?" not in literal


@given(ANY_TEXT)
def test_java_literals_avoid_unicode_escapes_below_256(text: str) -> None:
    literal = java_text(text)
    units = ast.literal_eval(literal).encode("utf-16-le", "surrogatepass")
    assert units == text.encode("utf-16-le")
    assert "\\u00" not in literal
    assert literal.isascii() and literal.isprintable()


@given(ANY_TEXT)
def test_kotlin_literals_have_no_templates(text: str) -> None:
    literal = kotlin_text(text)
    units = ast.literal_eval(literal).encode("utf-16-le", "surrogatepass")
    assert units == text.encode("utf-16-le")
    assert "$" not in literal and literal.isascii() and literal.isprintable()


def test_floats_have_the_shortest_exact_form() -> None:
    strings = [float_text(v) for v in (127.5, 1, 0.017124753831663668, 1e-5, -0.0)]
    assert strings == ["127.5f", "1.0f", "0.017124753f", "1e-05f", "-0.0f"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_numbers_outside_of_float32_are_refused(value: float) -> None:
    with pytest.raises(UnsupportedError, match="not a float32 number"):
        float_text(value)


def test_sizes_are_listed() -> None:
    assert dims_text((-1, 28, 28)) == "-1, 28, 28"
    assert dims_text(()) == ""


def test_identifier_uses_the_last_part_of_a_name() -> None:
    (words,) = words_of(["InceptionV3/Predictions/Reshape_1"], "output")
    assert words == ("Reshape", "1", "output")
    assert pascal(words) == "Reshape1Output"
    assert camel(words) == "reshape1Output"
    assert snake(words) == "reshape_1_output"
    assert upper(words) == "RESHAPE_1_OUTPUT"


def test_names_with_equal_last_parts_keep_all_parts() -> None:
    assert words_of(["a/y", "b/y"], "output") == [("a", "y", "output"), ("b", "y", "output")]


@given(st.lists(ANY_TEXT, max_size=8))
def test_identifiers_are_valid_and_distinct(names: list[str]) -> None:
    for spell in (pascal, camel, snake, upper):
        identifiers = [spell(words) for words in words_of(names, "input")]
        assert all(name.isidentifier() and name.isascii() for name in identifiers)
        assert len({name.casefold() for name in identifiers}) == len(names)
