"""Known devices and their speeds."""

from __future__ import annotations

import pytest

from mobileprep.errors import UsageError
from mobileprep.targets.op_classes import ClassCost
from mobileprep.targets.targets import devices, find_device


def test_known_devices_have_their_gflops() -> None:
    assert find_device("phone-2016").gflops == 20
    assert find_device("raspberry-pi-3").gflops == 5


def test_minimum_time_is_computed_from_gflops() -> None:
    costs = [ClassCost("convolution", 2, 9 * 10**9, 10**6), ClassCost("other", 1, 10**9, 0)]
    assert find_device("phone-2016").seconds(costs) == 0.5


def test_every_device_names_its_source() -> None:
    for name, device in devices().items():
        assert name == device.name
        assert device.gflops > 0
        assert device.url.startswith("https://")
        assert device.source
        assert device.basis
        assert device.title


def test_unknown_device_suggests_closest_name() -> None:
    with pytest.raises(UsageError) as error:
        find_device("raspbery-pi-3")
    assert error.value.hint == "did you mean 'raspberry-pi-3'?"
    with pytest.raises(UsageError) as error:
        find_device("?")
    assert "phone-2016" in error.value.hint
