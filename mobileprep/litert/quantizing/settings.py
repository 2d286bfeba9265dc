"""What is asked of a program in integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal, TypeAlias, get_args

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.litert.quantizing.steps import Range

EndType: TypeAlias = Literal["float", "int8", "uint8", "int16"]
END_TYPES: Final[tuple[EndType, ...]] = get_args(EndType)

_TAKEN: Final[Mapping[DType, frozenset[EndType]]] = {
    DType.INT8: frozenset({"float", "int8", "uint8"}),
    DType.INT16: frozenset({"float", "int16"}),
}


@dataclass(frozen=True)
class Integers:
    """How a program computes in integers.

    Args:
        kind: of activations: int8 or int16.
        ranges: of tensors, by name.
        is_trained: whether ranges of fake quantization count before those of ``ranges``.
        rules: which layers are treated otherwise, as ``quantize_nodes`` takes them; of several
            that fit one, the last counts.
        input_type: what float inputs of the program are in the file.
        output_type: what float outputs are.

    Raises:
        UsageError: inputs or outputs of that type do not go with the activations.
    """

    kind: DType = DType.INT8
    ranges: Mapping[str, Range] = field(default_factory=dict)
    is_trained: bool = True
    rules: tuple[str, ...] = ()
    input_type: EndType = "float"
    output_type: EndType = "float"

    def __post_init__(self) -> None:
        taken = _TAKEN[self.kind]
        for name in ("input_type", "output_type"):
            asked = getattr(self, name)
            if asked not in taken:
                message = f"inference_{name} is {asked}, and activations are {self.kind.short}"
                raise UsageError(message, f"take one of {', '.join(sorted(taken))}")
