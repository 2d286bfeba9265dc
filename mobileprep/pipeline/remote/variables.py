"""The environment's variables for remote stores."""

from __future__ import annotations

from typing import Final

URL: Final = "MOBILEPREP_REMOTE_CACHE"
MODE: Final = "MOBILEPREP_REMOTE_CACHE_MODE"
TOKEN: Final = "MOBILEPREP_REMOTE_TOKEN"
PLAIN_TOKEN: Final = "MOBILEPREP_REMOTE_PLAIN_TOKEN"
CA: Final = "MOBILEPREP_REMOTE_CA"
