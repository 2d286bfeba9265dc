"""Generate ``recipe.schema.json``, the JSON Schema for editors.

The schemas that builds use are in several files, apply after variables are replaced, and include
transforms from outside the package. An editor has a single file and sees recipes as written. So
this schema includes all transforms and their parameters, has no external references, accepts
``${NAME}`` for any value, and accepts unknown transforms if a recipe can define its own. It uses
only keywords that the YAML language server supports.
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
    """Return the schema of a recipe before variables are replaced."""
    base = recipe_schema()
    schema: Schema = _as_written(base, base)
    schema = {"$schema": schema.pop("$schema"), "$id": SCHEMA_ID, **schema}
    names = list(schemas.names)
    schema["allOf"] = [_names_checked()]
    schema["$defs"] |= {
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
    return schema


def rendered(schema: Schema) -> str:
    """Return the file content of a schema."""
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
    if key == "propertyNames" and "$ref" in value:  # Keys cannot contain variables.
        return base["$defs"][value["$ref"].rpartition("/")[2]]
    return value


def _refuses_text(schema: Schema) -> bool:
    kinds = schema.get("type", [])
    listed = {kinds} if isinstance(kinds, str) else set(kinds)
    return bool(_CONSTRAINS & schema.keys() or (_SCALARS & listed and "string" not in listed))


def _step(schemas: TransformSchemas) -> Schema:
    """Return the schema of a step; parameters of known transforms are checked."""
    described = [str((schemas.get(name) or {}).get("description", "")) for name in schemas.names]
    properties = {
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
                "properties": properties,
                "additionalProperties": {"$ref": "#/$defs/parameters"},
            },
        ],
    }


def _needing(schemas: TransformSchemas, name: str) -> Schema:
    required = (schemas.get(name) or {}).get("required")
    reference = {"$ref": f"#/$defs/step_{name}"}
    return {**reference, "required": required} if required else reference


def _parameters(schemas: TransformSchemas, name: str) -> Schema:
    """Return the schema of a transform's parameters: a mapping, or a list of mappings."""
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
    # A list with one item may be written without brackets.
    aside: Schema = {key: written.pop(key) for key in _ANNOTATIONS if key in written}
    return {**aside, "anyOf": [written, _as_written(schema.get("items", {}), base)]}


def _names_checked() -> Schema:
    """Reject unknown transforms in recipes without plugins and ``extends``."""
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
