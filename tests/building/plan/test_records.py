"""Records read from JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import convert, to_builtins

from mobileprep.building.plan.engines import EngineRecord
from mobileprep.building.plan.spec import CacheEntryError, Upstream, read_record
from mobileprep.building.stages.budget.spec import BudgetLine, BudgetRecord
from mobileprep.building.stages.calibrate.spec import CalibrationRecord
from mobileprep.building.stages.check.spec import CheckRecord
from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.package.spec import (
    CompressRecord,
    KernelsRecord,
    ModelFacts,
    PackageRecord,
)
from mobileprep.targets.migration.records import Route

KERNELS = KernelsRecord("1.15", 3, None)
ENGINE = EngineRecord("openvino", 1e-4, "9.1", 3, 1e-5)


@pytest.mark.parametrize(
    "record",
    [
        BudgetRecord((BudgetLine("flops", 5, 7), BudgetLine("latency_ms", 0.5, 1.5, "a rate"))),
        CompressRecord(7, "deflate"),
        PackageRecord(ModelFacts("m.pb", 1, 2, 3, 4), {"Relu": 1}, ("careful",), (KERNELS,)),
        CheckRecord("fold_constants", "y", 0.5, 0.25, None, ENGINE),
        CheckRecord("fold_constants", "y", 0.5, 0.25, 1.0, EngineRecord("numpy", 1e-4)),
        FreezeRecord(1, 2, 3, 4, {"Add": 1}, 5, ("a", "b"), (), {}),
    ],
    ids=lambda record: type(record).__name__,
)
def test_record_round_trip(record: Any) -> None:
    data = json.loads(json.dumps(to_builtins(record)))
    again = convert(data, type(record))
    assert again == record
    assert repr(again) == repr(record)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (CompressRecord, "[]"),
        (CompressRecord, "{"),
        (CompressRecord, "[" * 50_000),
        (CompressRecord, '{"bytes": 1}'),
        (CompressRecord, '{"bytes": true, "compressor": ""}'),
        (CompressRecord, '{"bytes": null, "compressor": ""}'),
        (CompressRecord, '{"bytes": 1.5, "compressor": ""}'),
        (CompressRecord, '{"bytes": 1, "compressor": 2}'),
        (CompressRecord, f'{{"bytes": {10**400}, "compressor": ""}}'),
        (BudgetRecord, '{"lines": "ab"}'),
        (BudgetRecord, '{"lines": [7]}'),
        (BudgetRecord, '{"lines": [{"name": "flops", "found": "5", "limit": 7}]}'),
        (CalibrationRecord, '{"ranges": [1]}'),
        (CalibrationRecord, '{"ranges": {"a": [1, "b"]}}'),
        (CalibrationRecord, f'{{"ranges": {{"a": [1, {10**400}]}}}}'),
        (Route, '{"runtime": "none", "verdict": "as-is"}'),
    ],
    ids=str,
)
def test_invalid_json_is_refused(kind: type, text: str) -> None:
    upstream = Upstream("r/task", "output.json")
    with pytest.raises(CacheEntryError, match=r"output\.json makes no sense") as caught:
        read_record(kind, text.encode(), upstream)
    assert caught.value.tasks == (upstream.task,)
