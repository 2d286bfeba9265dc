"""A model's interface: the tensors that the app feeds and fetches."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from mobileprep.stages.base import Job

FILE = "interface.json"


@dataclass(frozen=True)
class Interface:
    """Tensor names, signatures resolved by the freeze stage.

    ``init_ops`` are the ops that the app runs once after loading; they fill lookup tables.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    init_ops: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[str, ...]:
        """What transforms must keep: the outputs, and the ops that the app runs first."""
        return (*self.outputs, *self.init_ops)


def write_interface(job: Job, interface: Interface) -> None:
    """Leave the interface for the stages that follow."""
    job.write_json(FILE, asdict(interface))


def read_interface(job: Job) -> Interface:
    """The interface that the freeze stage left."""
    data = job.read_json("interface")
    return Interface(tuple(data["inputs"]), tuple(data["outputs"]), tuple(data["init_ops"]))
