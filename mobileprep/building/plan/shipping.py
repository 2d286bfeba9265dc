"""The stages of what ships: the package, how small it compresses, and the limits it is held to."""

from __future__ import annotations

from typing import Final

from mobileprep.building.plan.app_stages import encrypted_file, lite_description
from mobileprep.building.plan.checks import Frozen
from mobileprep.building.plan.fingerprints import compressor
from mobileprep.building.plan.regular_expressions import regex_engine
from mobileprep.building.plan.sources import single_file
from mobileprep.building.plan.spec import Files, StageSpec, Upstream, places
from mobileprep.building.plan.stages import BudgetStage, CompressStage, PackageStage
from mobileprep.recipe.model import Target
from mobileprep.recipe.validation_settings import Quantize

ENDINGS: Final = {"text": "pbtxt", "tflite": "tflite"}
"""How the file of an artifact ends, where that is not ``pb``."""


def package_spec(
    target: Target, file: str, frozen: Frozen, graph: Upstream, ranges: Upstream | None
) -> StageSpec:
    """The stage that makes the files of a target."""
    is_lite = target.artifact == "tflite"
    quantize = target.quantize if is_lite else Quantize()
    described = lite_description(target) if is_lite else {}
    stage = PackageStage(
        file=file,
        artifact=target.artifact,
        flex=target.flex,
        min_runtime=target.min_runtime,
        encrypted=encrypted_file(target, file),
        platform=target.platform,
        abis=target.abis,
        # Headers are for TensorFlow's runtime, which LiteRT is not.
        registration=() if is_lite else target.registration,
        allow=() if is_lite else target.allow,
        ops={} if is_lite else {op.name: op.kernels for op in target.ops},
        op_sources={} if is_lite else _op_sources(target),
        **described,
        graph=graph,
        interface=frozen.interface,
        assets=frozen.assets if is_lite else None,
        quantize=quantize,
        ranges=ranges,
        regular_expressions=regex_engine() if quantize.rules else "",
    )
    shipping = places(target, "platform", "abis", "registration", "ops", "artifact", "quantize")
    where = {**shipping, **places(target, "transforms", "inputs", "validation")}
    return StageSpec(f"{target.folder}/package", stage, where)


def _op_sources(target: Target) -> dict[str, Files]:
    files = [single_file(source) for op in target.ops for source in op.sources]
    return {f"op source {file.root.name}": file for file in files}


def compress_spec(target: Target, graph: Upstream, shipped: Upstream) -> StageSpec:
    """The stage that measures how small a target's model file compresses."""
    is_graph = target.artifact == "frozen" and target.protect.key is None
    read = {"graph": graph} if is_graph else {"model": shipped}
    stage = CompressStage(compressor=compressor(), **read)
    return StageSpec(f"{target.folder}/compress", stage)


def budget_spec(
    target: Target, frozen: Frozen, graph: Upstream, package: str, compress: str
) -> StageSpec:
    """The stage that holds a target to its limits."""
    stage = BudgetStage(
        budget=target.budget,
        device=target.device,
        inputs=target.inputs,
        package=Upstream(package, PackageStage.RECORD),
        compressed=Upstream(compress, CompressStage.RECORD),
        graph=graph,
        interface=frozen.interface,
        assets=frozen.assets,
    )
    return StageSpec(f"{target.folder}/budget", stage, places(target, "budget", "inputs"))
