"""Models for tests of generated app code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mobileprep.formats.dtypes import DType
from mobileprep.targets.integration.render import AppModel, AppTensor, Images

HOSTILE: Final = (
    'a"; System.exit(1); String b = "',
    "\\u0022; \\",
    "line\nbreak*/ //",
    "${System.exit(1)} $x",
    "??/ %s \u00e9\u2028\U0001f600\0",
)
"""Names that would end or alter a string literal."""


def app_model(**changes: Any) -> AppModel:
    """A model with every form of input and output and every option."""
    options: dict[str, Any] = {
        "file": "digits.pb",
        "artifact": "frozen",
        "inputs": (
            AppTensor("image", DType.FLOAT, (-1, 2, 1, 3)),
            AppTensor("scale:0", DType.DOUBLE, ()),
            AppTensor("any", DType.INT64),
        ),
        "outputs": (
            AppTensor("logits/y", DType.FLOAT, (-1, 10)),
            AppTensor("class", DType.INT32, (3,)),
            AppTensor("raw:1", DType.UINT8, (-1, -1)),
        ),
        "init_ops": ("init_all_tables",),
        "images": Images("image", "bgr", (103.5, 116.0, 123.0), (1.0, 1.0, 2.0)),
        "labels": "digits_labels.txt",
        "threads": 2,
        "package": "org.example.app",
        "class_name": "Classifier",
    }
    return AppModel(**{**options, **changes})


def lite_model(**changes: Any) -> AppModel:
    """The same model for LiteRT, which accepts other dtypes and has no init ops."""
    inputs = (
        AppTensor("image", DType.FLOAT, (-1, 2, 1, 3)),
        AppTensor("scale:0", DType.INT32, (2,)),
        AppTensor("any", DType.INT64),
    )
    options = {"file": "digits.tflite", "artifact": "tflite", "inputs": inputs, "init_ops": ()}
    return app_model(**{**options, **changes})


def hostile_model(names: Sequence[str] = HOSTILE) -> AppModel:
    """A model whose names contain code."""
    return app_model(
        inputs=tuple(AppTensor(name, DType.FLOAT, (1,)) for name in names),
        outputs=tuple(AppTensor(f"{name}:1", DType.FLOAT, (1,)) for name in names),
        init_ops=tuple(names),
        images=None,
    )
