"""Work that threads share."""

from __future__ import annotations

import threading

import pytest

from mobileprep.core.parallel import at_once


def test_an_interrupt_does_not_wait_for_what_has_begun() -> None:
    begun, released, ended = threading.Event(), threading.Event(), threading.Event()

    def work(is_interrupted: bool) -> None:
        if is_interrupted:
            begun.wait(30)
            raise KeyboardInterrupt
        begun.set()
        released.wait(30)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        at_once(work, [True, False], 2)
    assert not ended.is_set()
    released.set()


def test_an_error_waits_for_what_has_begun() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(is_wrong: bool) -> None:
        if is_wrong:
            begun.wait(30)
            raise LookupError
        begun.set()
        ended.set()

    with pytest.raises(LookupError):
        at_once(work, [True, False], 2)
    assert ended.is_set()
