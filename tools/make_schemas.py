"""Generate schemas and reference pages from the declarations of options.

python tools/make_schemas.py

The dataclasses of the transforms, ``recipe/settings.py``, and ``freezing/settings.py`` declare the
options. ``recipe_format.json`` in this directory contains the rest of the recipe format. A string
in place of a schema, such as ``"Target.engine"``, is replaced with the schema of that option.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

# Import from the checkout.
import recipe_reference  # noqa: E402
import transform_reference  # noqa: E402
from output_schemas import OUTPUTS, output_schema  # noqa: E402

from mobileprep.core.declare import (  # noqa: E402
    DIALECT,
    Schema,
    parameters_schema,
    rendered,
    section_schema,
)
from mobileprep.data.options import FeatureReading, Reading  # noqa: E402
from mobileprep.freezing.settings import Freeze  # noqa: E402
from mobileprep.recipe import editor_schema  # noqa: E402
from mobileprep.recipe.data import DEVICE_SCHEMA  # noqa: E402
from mobileprep.recipe.model import Integration, Protection, Recipe, Target  # noqa: E402
from mobileprep.recipe.pipeline_settings import (  # noqa: E402
    FlopsLimits,
    LatencyLimits,
    PassRate,
    Pipeline,
    PipelineBudget,
    PipelineStep,
    RunCounts,
    Scales,
    Windows,
)
from mobileprep.recipe.preprocessing import StatedPreprocessing  # noqa: E402
from mobileprep.recipe.schemas import (  # noqa: E402
    OUTPUT_SCHEMAS,
    SCHEMA_FOLDER,
    TransformSchemas,
    recipe_schema,
)
from mobileprep.recipe.settings import (  # noqa: E402
    Budget,
    Cache,
    Check,
    Download,
    InputSpec,
    LiteRT,
    OpLimits,
    Source,
    Streaming,
)
from mobileprep.recipe.validation_settings import (  # noqa: E402
    METRIC_NAMES,
    QUANTIZERS,
    Calibration,
    MetricChoice,
    MetricFunction,
    NamedValidation,
    Quantize,
    QuantizeRule,
    Validation,
)
from mobileprep.targets.measurements import Measurement  # noqa: E402
from mobileprep.targets.op_classes import MAX_RATE, MIN_RATE, OP_CLASSES  # noqa: E402
from mobileprep.targets.targets import Device  # noqa: E402
from mobileprep.transforms.base import transform_class, transform_names  # noqa: E402

FORMAT = Path(__file__).with_name("recipe_format.json")
TRANSFORMS = SCHEMA_FOLDER / "transforms"
# Written by make_transform_images.py.
IMAGES = ROOT / "docs" / "images" / "transforms"
_SECTIONS = (
    Budget,
    LiteRT,
    Streaming,
    Cache,
    Calibration,
    Check,
    Download,
    FeatureReading,
    Freeze,
    InputSpec,
    Integration,
    MetricChoice,
    MetricFunction,
    NamedValidation,
    OpLimits,
    FlopsLimits,
    LatencyLimits,
    PassRate,
    Pipeline,
    PipelineBudget,
    PipelineStep,
    Protection,
    Quantize,
    QuantizeRule,
    Reading,
    Recipe,
    RunCounts,
    Scales,
    Source,
    StatedPreprocessing,
    Target,
    Validation,
    Windows,
)


def transform_schemas() -> dict[Path, str]:
    """Return the schema of each transform's parameters, by file."""
    return {TRANSFORMS / f"{name}.json": rendered(_parameters(name)) for name in transform_names()}


def output_schemas() -> dict[Path, str]:
    """Return the schema of each ``--json`` output, by file."""
    return {OUTPUT_SCHEMAS / f"{name}.json": rendered(output_schema(name)) for name in OUTPUTS}


def recipe_format() -> str:
    """Return ``recipe.json``: the recipe format with the schemas of all options."""
    known: dict[str, Any] = {}
    for section in _SECTIONS:
        keys = section_schema(section)
        known[section.__name__] = keys
        known |= {f"{section.__name__}.{key}": value for key, value in keys.items()}
    known |= {mode: _of_mode(mode) for mode in QUANTIZERS}
    known["metric_name"] = _metric_name()
    # A single metric may be written directly in the section.
    known["Validation"] = {**known["Validation"], **known["MetricChoice"]}
    known["NamedValidation"] = {"name": known["NamedValidation.name"], **known["Validation"]}
    return rendered(_filled(json.loads(FORMAT.read_text(encoding="utf-8")), known))


def device_schema() -> str:
    """Return the schema of a device profile."""
    keys = section_schema(Device) | {"rates": _rates_schema()}
    return rendered(
        {
            "$schema": DIALECT,
            "title": "mobileprep device",
            "description": "A device, and how many operations it does at best.",
            "type": "object",
            "additionalProperties": False,
            "required": ["title", "gflops", "source"],
            "properties": keys,
        }
    )


def measurement_schema() -> str:
    """Return the schema of a measurement file."""
    schema = msgspec.json.schema(Measurement)
    return rendered({"$schema": DIALECT, "title": "mobileprep measurement", **schema})


def _rates_schema() -> dict[str, Any]:
    """Return the schema of the effective rates of a profile."""
    number: dict[str, Any] = {"type": "number", "minimum": MIN_RATE, "maximum": MAX_RATE}
    rate = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "gflops": {"description": "Billions of operations a second.", **number},
            "gbytes": {"description": "Billions of bytes read and written a second.", **number},
            "overhead_us": {
                "description": "Microseconds of each op.",
                **number,
                "minimum": 0,
                "default": 0,
            },
        },
    }
    return {
        "description": "Effective rates by class of op, which `mobileprep device fit` writes. The"
        " time of an op is the sum of its operations, its bytes, and its overhead. Classes without"
        " rates take no time.",
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
        "properties": dict.fromkeys(OP_CLASSES, rate),
    }


def derived() -> dict[Path, str]:
    """Return the files that are derived from the schemas: editor schema and reference pages."""
    schemas = TransformSchemas()
    return {
        SCHEMA_FOLDER / "recipe.schema.json": editor_schema.rendered(
            editor_schema.editor_schema(schemas)
        ),
        ROOT / "docs" / "reference/recipe.md": recipe_reference.render(recipe_schema()),
        ROOT / "docs" / "reference/transforms.md": transform_reference.render(
            schemas, {path.stem for path in IMAGES.glob("*.svg")}
        ),
    }


def main() -> None:
    """Write all files, and remove the schemas of transforms that no longer exist."""
    made = {
        **transform_schemas(),
        **output_schemas(),
        SCHEMA_FOLDER / "recipe.json": recipe_format(),
        DEVICE_SCHEMA: device_schema(),
        SCHEMA_FOLDER / "measurement.json": measurement_schema(),
    }
    for gone in set(TRANSFORMS.glob("*.json")) - made.keys():
        gone.unlink()
    _write(made)
    _write(derived())


def _parameters(name: str) -> Schema:
    kind = transform_class(name)
    tools = kind.of_graph_transform_tool
    return parameters_schema(kind, name, kind.summary, of_graph_transform_tool=tools)


def _metric_name() -> Schema:
    """Return the schema of a metric name, with a pattern for the top-k metrics."""
    more = "|".join(name for name in METRIC_NAMES if not re.fullmatch("top[0-9]+", name))
    return {
        "pattern": f"^(top[1-9][0-9]{{0,4}}|{more})$(?!\\n)",
        "patternErrorMessage": f"a metric is one of {', '.join(METRIC_NAMES)}, or any other top-k",
        "examples": list(METRIC_NAMES),
    }


def _of_mode(mode: str) -> Schema:
    """Return the schema of a key of ``quantize`` that sets a parameter of the mode's transform."""
    transform, parameter = QUANTIZERS[mode]
    described = _parameters(transform)["properties"][parameter]
    sentence = described["description"]
    *most, last = (f"`{other}`" for other, (_, taken) in QUANTIZERS.items() if taken == parameter)
    modes = f"{', '.join(most)} or {last}" if most else last
    return {**described, "description": f"With {modes}: {sentence[0].lower()}{sentence[1:]}"}


def _filled(schema: Any, known: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(schema, dict):
        return schema
    return dict(_children(schema, known))


def _children(schema: dict[str, Any], known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            named = known[value] if isinstance(value, str) else value
            yield (
                key,
                {
                    n: known[v] if isinstance(v, str) else _filled(v, known)
                    for n, v in named.items()
                },
            )
        else:
            yield key, _filled(value, known)


def _write(made: dict[Path, str]) -> None:
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
