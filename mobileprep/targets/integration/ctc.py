"""CTC decoders that an app runs; without numpy, for fast starts."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Decoding(Struct, frozen=True, kw_only=True):
    """A CTC decoder that the app runs on an output of the model.

    Args:
        logits: name of the output with the logits, ``[steps, batch, classes]``.
        method: the decoder.
        merge_repeated: whether repeated labels become one.
        blank: class of the blank; negative numbers count from the last class.
        beam_width: number of sequences that the beam search compares.
        top_paths: number of sequences for each batch entry.
        lengths: name of the output with the number of steps of each batch entry; empty if the app
            knows them.
        fixed_lengths: the numbers of steps if they are constant, otherwise empty.
    """

    logits: str
    method: Literal["greedy", "beam search"]
    merge_repeated: bool
    blank: int = -1
    beam_width: int = 1
    top_paths: int = 1
    lengths: str = ""
    fixed_lengths: tuple[int, ...] = ()

    def __str__(self) -> str:
        parts = [f"CTC {self.method} of {self.logits}"]
        if self.method == "beam search":
            parts.append(f"beam width {self.beam_width}")
            parts.append(f"{self.top_paths} path{'s' * (self.top_paths != 1)}")
        if self.blank != -1:
            parts.append(f"blank {self.blank}")
        if self.merge_repeated:
            parts.append("repeated labels merged")
        if self.lengths:
            parts.append(f"lengths of {self.lengths}")
        return "; ".join(parts)
