"""Makes the schema that editors check by, ``recipe.schema.json``.

What builds go by lies in several files, is read after variables are replaced, and knows transforms
from outside the package. An editor has one file and sees recipes as they are written. So this one
has the transforms with their parameters in it, refers to nothing outside, takes ``${NAME}``
wherever a value stands, and takes unknown transforms where a recipe may bring its own. It keeps to
keywords that the YAML language server knows.
"""

from __future__ import annotations

import json
from typing import Any, Final

from mobileprep.recipe.schemas import Schema, TransformSchemas, recipe_schema

SCHEMA_ID: Final = "urn:mobileprep:recipe:1"
_ANNOTATIONS: Final = ("description", "default")
_CONSTRAINS: Final = {"enum", "pattern"}
_SCALARS: Final = {"integer", "number", "boolean"}
_VARIABLE: Final[Schema] = {"$ref": "#/$defs/variable"}
_CHAINS: Final = ("transforms", "then")


def editor_schema(schemas: TransformSchemas) -> Schema:
    """The schema of a recipe as it is written."""
    base = recipe_schema()
    found: Schema = _as_written(base, base)
    found = {"$schema": found.pop("$schema"), "$id": SCHEMA_ID, **found}
    names = list(schemas.names)
    found["allOf"] = [_names_checked()]
    found["$defs"] |= {
        "variable": {
            "description": "`${NAME}`, or `${NAME:-default}`.",
            "type": "string",
            "pattern": "\\$\\{",
        },
        "step": _step(schemas),
        "known_step": {
            "anyOf": [
                {"type": "string", "enum": names},
                _VARIABLE,
                {"type": "object", "propertyNames": {"enum": names}},
            ]
        },
        "known_chain": {"items": {"$ref": "#/$defs/known_step"}},
        **{f"step_{name}": _parameters(schemas, name) for name in names},
    }
    return found


def rendered(schema: Schema) -> str:
    """A schema as the text of a file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _as_written(schema: Any, base: Schema) -> Any:  # noqa: ANN401 - JSON
    """Return a schema that also allows ``${NAME}`` for values that are not strings."""
    if not isinstance(schema, dict):
        return schema
    changed = {key: _below(key, value, base) for key, value in schema.items() if key != "format"}
    if not _refuses_text(schema):
        return changed
    aside = {key: changed.pop(key) for key in _ANNOTATIONS if key in changed}
    return {**aside, "anyOf": [changed, _VARIABLE]}


def _below(key: str, value: Any, base: Schema) -> Any:  # noqa: ANN401 - JSON
    if key in ("properties", "$defs"):
        return {name: _as_written(child, base) for name, child in value.items()}
    if key in ("items", "additionalProperties", "then", "else"):
        return _as_written(value, base)
    if key in ("anyOf", "oneOf", "allOf"):
        return [_as_written(child, base) for child in value]
    if key == "propertyNames" and "$ref" in value:  # keys hold no variables
        return base["$defs"][value["$ref"].rpartition("/")[2]]
    return value


def _refuses_text(schema: Schema) -> bool:
    kinds = schema.get("type", [])
    listed = {kinds} if isinstance(kinds, str) else set(kinds)
    return bool(_CONSTRAINS & schema.keys() or (_SCALARS & listed and "string" not in listed))


def _step(schemas: TransformSchemas) -> Schema:
    """Return the schema of a step; parameters of known transforms are checked."""
    described = [str((schemas.get(name) or {}).get("description", "")) for name in schemas.names]
    known = {
        name: {"description": text, **_needing(schemas, name)}
        for name, text in zip(schemas.names, described, strict=True)
    }
    names = {"enum": list(schemas.names), "enumDescriptions": described}
    return {
        "description": recipe_schema()["$defs"]["step"]["description"],
        "anyOf": [
            {"type": "string", "anyOf": [names, {"type": "string"}]},
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "properties": known,
                "additionalProperties": {"$ref": "#/$defs/parameters"},
            },
        ],
    }


def _needing(schemas: TransformSchemas, name: str) -> Schema:
    required = (schemas.get(name) or {}).get("required")
    reference = {"$ref": f"#/$defs/step_{name}"}
    return {**reference, "required": required} if required else reference


def _parameters(schemas: TransformSchemas, name: str) -> Schema:
    """A transform's parameters: a mapping, or a list of mappings of values in parallel."""
    schema = schemas.get(name) or {}
    closed = schema.get("additionalProperties", True)
    described = {
        key: _parameter(value, schema) for key, value in schema.get("properties", {}).items()
    }
    one = {"properties": described, "additionalProperties": closed}
    return {
        "type": ["object", "array", "null"],
        **one,
        "items": {"type": "object", "$ref": f"#/$defs/step_{name}"},
    }


def _parameter(schema: Schema, base: Schema) -> Schema:
    written: Schema = _as_written(schema, base)
    if schema.get("type") != "array":
        return written
    # A list of one may be written without its brackets.
    aside: Schema = {key: written.pop(key) for key in _ANNOTATIONS if key in written}
    return {**aside, "anyOf": [written, _as_written(schema.get("items", {}), base)]}


def _names_checked() -> Schema:
    """Unknown transforms are reported only if no recipe has custom ones."""
    chain = {"$ref": "#/$defs/known_chain"}
    target = {"properties": dict.fromkeys(_CHAINS, chain)}
    targets = {"additionalProperties": target}
    model = {"properties": {"transforms": chain, "targets": targets}}
    return {
        "if": {"anyOf": [{"required": ["plugins"]}, {"required": ["extends"]}]},
        "else": {
            "properties": {
                "transforms": chain,
                "targets": targets,
                "models": {"additionalProperties": model},
            }
        },
    }
