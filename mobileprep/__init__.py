"""mobileprep: from a trained TensorFlow 1-style model to what a mobile app ships."""

from __future__ import annotations

__version__ = "0.1.0"
