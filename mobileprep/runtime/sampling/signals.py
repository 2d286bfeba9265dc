"""Seeded signals with the structure of natural ones: pictures, sounds, rows of features.

Networks answer to shapes, edges and tones. White noise lets most of them answer the same
whatever it is, so that comparing answers to noise tells nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.ir.tensor import Array

_WAVES: Final = 7
_OBJECTS: Final = 5
_GRAIN: Final = 0.02
_TONES: Final = 4
# Pictures and sounds are given in the steps that files have. It also hides what processors
# differ in when they compute a cosine.
_LEVELS: Final = 255
_SOUND_LEVELS: Final = 32767


def picture(generator: np.random.Generator, rows: int, columns: int, channels: int) -> Array:
    """A smooth scene with some objects that have edges, and a little grain.

    Returns:
        ``[rows, columns, channels]`` from 0 to 1 in steps of 1/255.
    """
    y = np.linspace(-1, 1, rows)[:, None]
    x = np.linspace(-1, 1, columns)[None, :]
    scene = np.zeros((rows, columns, channels))
    for wave in range(_WAVES):
        angle, phase = generator.uniform(0, 2 * np.pi, 2)
        frequency = generator.uniform(0.3, 1.0) * 2.0 ** (wave / 2)
        along = np.pi * frequency * (x * np.cos(angle) + y * np.sin(angle))
        colour = generator.uniform(-1, 1, channels) / (1 + wave / 2)
        scene += np.cos(along + phase)[:, :, None] * colour
    for number in range(_OBJECTS):
        middle = generator.uniform(-0.8, 0.8, 2)
        size = generator.uniform(0.1, 0.5, 2)
        down, across = (y - middle[0]) / size[0], (x - middle[1]) / size[1]
        inside = (
            down**2 + across**2 < 1 if number % 2 else (np.abs(down) < 1) & (np.abs(across) < 1)
        )
        scene[inside] = 0.3 * scene[inside] + generator.uniform(-2, 2, channels)
    scene += generator.normal(0, _GRAIN, scene.shape) * max(float(np.ptp(scene)), 1e-6)
    return _stretched(scene, generator)


def sound(generator: np.random.Generator, length: int) -> Array:
    """A few tones with overtones that swell and fade, over a little hiss.

    Returns:
        ``[length]`` within -1 and 1, in the steps of 16-bit files.
    """
    time = np.arange(length)
    share = time / max(length, 1)
    wave = np.zeros(length)
    for _ in range(_TONES):
        # In cycles a value: from 50 to 1,600 Hz at 16 kHz.
        pitch = 2.0 ** generator.uniform(-8.3, -3.3)
        glide = generator.uniform(-0.3, 0.3)
        turns = 2 * np.pi * pitch * time * (1 + glide * share / 2)
        swell = np.exp(
            -(((share - generator.uniform(0.1, 0.9)) / generator.uniform(0.05, 0.3)) ** 2)
        )
        for overtone in (1, 2, 3):
            wave += swell * np.sin(overtone * turns) * generator.uniform(0.2, 1) / overtone
    wave += generator.normal(0, 0.01, length)
    loudest = max(float(np.abs(wave).max(initial=0)), 1e-6)
    level = generator.uniform(0.3, 0.9)
    steps: Array = np.round(wave * level / loudest * _SOUND_LEVELS) / _SOUND_LEVELS
    return steps


def features(generator: np.random.Generator, count: int) -> Array:
    """Numbers without an order: ``[count]`` from 0 to 1."""
    return generator.random(count)


def _stretched(scene: Array, generator: np.random.Generator) -> Array:
    """Values from nearly 0 to nearly 1, each scene with its own brightness and contrast."""
    low, high = float(scene.min(initial=0)), float(scene.max(initial=1))
    dark, bright = generator.uniform(0, 0.15), generator.uniform(0.85, 1)
    share = (scene - low) / max(high - low, 1e-6)
    steps: Array = np.round((dark + share * (bright - dark)) * _LEVELS) / _LEVELS
    return steps
