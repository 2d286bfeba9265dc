"""Devices and what they reach."""

from __future__ import annotations

import pytest

from mobileprep.errors import UsageError
from mobileprep.targets.targets import devices, find_device


def test_the_guides_devices_are_there() -> None:
    assert find_device("phone-2016").gflops == 20
    assert find_device("raspberry-pi-3").gflops == 5


def test_the_least_time_follows_from_the_rate() -> None:
    assert find_device("phone-2016").seconds(10_000_000_000) == 0.5


def test_every_number_says_where_it_was_published() -> None:
    for name, device in devices().items():
        assert name == device.name
        assert device.gflops > 0
        assert device.url.startswith("https://")
        assert device.source
        assert device.basis
        assert device.title


def test_an_unknown_device_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        find_device("raspbery-pi-3")
    assert caught.value.hint == "did you mean 'raspberry-pi-3'?"
    with pytest.raises(UsageError) as caught:
        find_device("?")
    assert "phone-2016" in caught.value.hint
