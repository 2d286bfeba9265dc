"""Statements on output folders, held to the published fields of in-toto and SLSA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mobileprep.building.pipeline.publish import Manifest
from mobileprep.building.targets import (
    BUILD_TYPE,
    BUILDER,
    check_builder,
    provenance_path,
    remove_provenance,
    statement,
    write_provenance,
)
from mobileprep.errors import CorruptFileError, UsageError

A, B, C = ("a" * 64, "b" * 64, "c" * 64)
MANIFEST = Manifest(
    "mobileprep 1.2", "r", "t", {"artifact": "frozen"}, {"m/g.pb": A}, {"r.pb": B}, C
)

URI = {"type": "string", "format": "uri", "pattern": "^[a-z]+:"}
# https://github.com/in-toto/attestation/blob/main/spec/v1/{statement,resource_descriptor}.md
RESOURCE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "uri": URI,
        "digest": {
            "type": "object",
            "minProperties": 1,
            "properties": {"sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"}},
        },
    },
    "additionalProperties": False,
    "anyOf": [{"required": ["uri"]}, {"required": ["digest"]}],
}
# https://slsa.dev/spec/v1.0/provenance#schema
PROVENANCE: dict[str, Any] = {
    "type": "object",
    "required": ["buildDefinition", "runDetails"],
    "additionalProperties": False,
    "properties": {
        "buildDefinition": {
            "type": "object",
            "required": ["buildType", "externalParameters"],
            "additionalProperties": False,
            "properties": {
                "buildType": URI,
                "externalParameters": {"type": "object"},
                "internalParameters": {"type": "object"},
                "resolvedDependencies": {"type": "array", "items": RESOURCE},
            },
        },
        "runDetails": {
            "type": "object",
            "required": ["builder"],
            "additionalProperties": False,
            "properties": {
                "builder": {
                    "type": "object",
                    "required": ["id"],
                    "additionalProperties": False,
                    "properties": {
                        "id": URI,
                        "builderDependencies": {"type": "array", "items": RESOURCE},
                        "version": {"type": "object", "additionalProperties": {"type": "string"}},
                    },
                },
                "metadata": {"type": "object"},
                "byproducts": {"type": "array", "items": RESOURCE},
            },
        },
    },
}
STATEMENT: dict[str, Any] = {
    "type": "object",
    "required": ["_type", "subject", "predicateType"],
    "additionalProperties": False,
    "properties": {
        "_type": {"const": "https://in-toto.io/Statement/v1"},
        "subject": {
            "type": "array",
            "minItems": 1,
            "items": {**RESOURCE, "required": ["digest"]},
        },
        "predicateType": {"const": "https://slsa.dev/provenance/v1"},
        "predicate": PROVENANCE,
    },
}


def test_statement_matches_the_manifest() -> None:
    found = statement(MANIFEST, "https://ci.example.com/models")
    Draft202012Validator(STATEMENT).validate(found)
    assert found["subject"] == [
        {"name": "manifest.json", "digest": {"sha256": C}},
        {"name": "r.pb", "digest": {"sha256": B}},
    ]
    definition = found["predicate"]["buildDefinition"]
    assert definition["buildType"] == BUILD_TYPE
    assert definition["externalParameters"] == {
        "recipe": "r",
        "target": "t",
        "settings": {"artifact": "frozen"},
    }
    assert definition["resolvedDependencies"] == [{"name": "m/g.pb", "digest": {"sha256": A}}]
    assert found["predicate"]["runDetails"] == {
        "builder": {"id": "https://ci.example.com/models", "version": {"mobileprep": "1.2"}}
    }


def test_it_reads_as_in_toto_s_own_library_has_it() -> None:
    messages = pytest.importorskip("in_toto_attestation.v1.statement")
    provenance = pytest.importorskip("in_toto_attestation.predicates.provenance.v1.provenance_pb2")
    from google.protobuf import json_format

    found = statement(MANIFEST, BUILDER)
    own = messages.Statement.copy_from_pb(json_format.ParseDict(found, messages.spb.Statement()))
    own.validate()
    json_format.ParseDict(found["predicate"], provenance.Provenance())


def test_provenance_is_written_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    with pytest.raises(CorruptFileError):
        write_provenance(folder)
    text = '{"tool": "mobileprep 1", "recipe": "r", "target": "t", "settings": {}, '
    (folder / "manifest.json").write_text(text + '"sources": {}, "files": {}}')
    path = write_provenance(folder)
    assert path == provenance_path(folder) == tmp_path / "t.provenance.json"
    written = json.loads(path.read_text())
    assert written["predicate"]["runDetails"]["builder"]["id"] == BUILDER
    assert remove_provenance(folder)
    assert not remove_provenance(folder)
    assert not path.exists()


@pytest.mark.parametrize("builder", ["", "ci", "ci example", "https:", "a b:c", "u:" + "x" * 3000])
def test_a_builder_is_named_by_a_uri(builder: str) -> None:
    check_builder("https://example.com/a?b=c#d")
    with pytest.raises(UsageError, match="is not a URI"):
        check_builder(builder)
