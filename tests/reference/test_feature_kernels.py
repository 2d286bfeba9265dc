"""Kernels of feature columns, texts and served examples against TensorFlow's own."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.reference import test_kernels
from tests.reference.cases import features
from tests.reference.cases.base import Case

pytestmark = pytest.mark.reference


@pytest.mark.parametrize("case", [*features.cases()], ids=str)
def test_a_kernel_gives_what_tensorflow_gives(case: Case, tf: ModuleType) -> None:
    test_kernels.test_a_kernel_gives_what_tensorflow_gives(case, tf)
