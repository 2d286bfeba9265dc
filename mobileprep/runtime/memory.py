"""Keeping freed memory in the process for the next tensor."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

_HIGHEST_THRESHOLD = (32 << 20) - (64 << 10)


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Have the C library keep the memory of freed tensors of up to 32 MB.

    By default glibc gives it back and gets it anew for the next tensor, page by page, which takes
    as long as a small convolution. Its threshold rises to the largest block freed so far
    (mallopt(3), M_MMAP_THRESHOLD): this frees one of that size, never touched. Without effect on
    other C libraries.
    """
    np.empty(_HIGHEST_THRESHOLD, np.uint8)
