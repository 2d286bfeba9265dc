"""A model's interface: the tensors that the app feeds and fetches."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from mobileprep.stages.base import Job

FILE = "interface.json"


@dataclass(frozen=True)
class Interface:
    """Tensor names, signatures resolved by the freeze stage."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def write_interface(job: Job, interface: Interface) -> None:
    """Leave the interface for the stages that follow."""
    job.write_json(FILE, asdict(interface))


def read_interface(job: Job) -> Interface:
    """The interface that the freeze stage left."""
    data = job.read_json("interface")
    return Interface(tuple(data["inputs"]), tuple(data["outputs"]))
