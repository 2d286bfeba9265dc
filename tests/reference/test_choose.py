"""Candidates and diagnoses of real networks."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep import choose
from mobileprep.freezing.loading import find_source
from mobileprep.inspection.costs import counted_run
from mobileprep.inspection.diagnosis import Diagnosis, diagnose
from mobileprep.inspection.summarizing import CountedModel, SummaryOptions, counted_model
from mobileprep.transforms.base import Context, make_transform
from tests.reference.networks import ALL_NETWORKS, cached_network

pytestmark = pytest.mark.reference

# Networks that were exported well, and those with leftovers of training.
PREPARED = (
    "tfjs-posenet/posenet.pb",
    "tfjs-facemesh/facemesh.pb",
    "tfjs-nsfwjs-mobilenet-v2/nsfwjs-mobilenet-v2.pb",
)
FINDINGS = {
    "arm-kws/DS_CNN_S.pb": ["fuse_batch_norms", "remove_no_ops"],
    "musicnn/MTT_musicnn": [
        *("choose_inference", "fuse_batch_norms", "fold_constants", "remove_no_ops"),
    ],
    "made-qat-mnist-tf115/frozen_eval_graph.pb": [
        *("fold_constants", "merge_scale_and_bias", "quantize_nodes", "remove_no_ops"),
    ],
}


def counted(path: Path) -> CountedModel:
    return counted_model(find_source(path).source, SummaryOptions())


def diagnosed(model: CountedModel) -> Diagnosis:
    assert model.run is not None
    inputs = [proposed.spec.name for proposed in model.proposal.inputs]
    return diagnose(model.run, inputs, model.proposal.outputs)


def test_inception_on_a_raspberry_pi() -> None:
    """A Raspberry Pi reaches about 5 GFLOP/s, so that Inception v3 takes more than 2 seconds."""
    network = cached_network("inceptionv3")
    shapes = [network.shape]
    (candidate,) = choose(
        [network.path], device="raspberry-pi-3", inputs=[network.input], input_shapes=shapes
    ).candidates
    assert candidate.flops is not None
    # Szegedy et al., Rethinking the Inception Architecture: 5 billion multiply-adds, each of which
    # is two operations, and less than 25 million parameters.
    assert 10e9 < candidate.flops < 12e9
    assert 20e6 < (candidate.parameters or 0) < 25e6
    assert candidate.best_seconds == candidate.flops / 5e9
    assert 2.2 < candidate.best_seconds < 2.4
    assert candidate.likely_seconds == (candidate.best_seconds, 2 * candidate.best_seconds)


@pytest.mark.parametrize("name", PREPARED)
def test_prepared_networks_have_nothing_to_improve(models: Path, name: str) -> None:
    diagnosis = diagnosed(counted(models / name))
    assert diagnosis.findings == ()
    assert diagnosis.layers is not None
    assert diagnosis.layers > 0.9


@pytest.mark.parametrize("name", ALL_NETWORKS)
def test_optimized_networks_have_nothing_to_improve(name: str) -> None:
    network = cached_network(name)
    model = counted(network.path)
    transforms = [finding.transform for finding in diagnosed(model).findings]
    assert "fuse_batch_norms" in transforms
    context = Context((network.input,), (network.output,))
    graph = make_transform("optimize", {}).apply(model.graph, context).graph
    run = counted_run(graph, [network.output], {network.input: network.shape})
    assert diagnose(run, context.inputs, context.outputs).findings == ()


@pytest.mark.parametrize("name", FINDINGS)
def test_findings_name_the_transforms_that_help(models: Path, name: str) -> None:
    findings = diagnosed(counted(models / name)).findings
    assert [finding.transform for finding in findings] == FINDINGS[name]
