"""What a kind of file has to tell to become samples."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from mobileprep.datasets.fitting import fitted
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array
from mobileprep.options.data import Reading
from mobileprep.runtime.sampling.inputs import FedTensor


@dataclass(frozen=True)
class Decoder(ABC):
    """Makes samples of files.

    Args:
        fed: the input that they are for; one of texts gets the files as they are.
        reading: what the recipe asks for.
        data: what messages call the data.
    """

    fed: FedTensor
    reading: Reading
    data: str

    def sample(self, data: bytes, name: str) -> Array:
        """A file's bytes as a sample, without an axis for samples.

        Raises:
            AccuracyError: it does not fit the input.
            CorruptFileError, UnsupportedError: it cannot be decoded.
        """
        is_text = self.fed.dtype is DType.STRING
        return fitted(np.array(data, object) if is_text else self._decoded(data), self.fed, name)

    def is_rotated(self, data: bytes) -> bool:
        """Whether a file says that it is to be turned before it is shown."""
        return False

    @abstractmethod
    def _decoded(self, data: bytes) -> Array:
        """The numbers in a file."""
