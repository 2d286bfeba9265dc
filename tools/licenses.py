"""Check that the runtime dependencies of mobileprep have permissive licenses.

    python tools/licenses.py

Checks the installed direct and indirect dependencies, including those of all extras except test,
dev, and browser. Dependencies that are not installed are listed and skipped. Exits with code 1 if a
license is not permissive.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

_PERMISSIVE = re.compile(
    r"\b(apache|bsd|mit|isc|psf|python software foundation|python-2\.0|hpnd|unlicense|"
    r"zlib|mpl|mozilla public license|cmu|public domain)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NOT_SHIPPED = re.compile(r"extra == ['\"](test|dev|browser)['\"]")
_LONGEST = 200  # some packages have the license text instead of its name


def license_of(found: Distribution) -> str:
    """Return the license of a distribution from the most exact metadata field that it has."""
    facts = found.metadata
    listed = [c for c in facts.get_all("Classifier") or [] if c.startswith("License ::")]
    told = facts.get("License-Expression") or "; ".join(listed) or facts.get("License") or ""
    return told[:_LONGEST].replace("\n", " ")


def required_by(name: str) -> dict[str, str]:
    """Return the licenses of the direct and indirect dependencies of a distribution, by name."""
    waiting, found = [name], {}
    while waiting:
        here = waiting.pop()
        if here in found:
            continue
        try:
            installed = distribution(here)
        except PackageNotFoundError:
            found[here] = "not installed"
            continue
        found[here] = license_of(installed)
        own = here == name
        waiting += [
            _NAME.match(line)[0].lower()  # type: ignore[index] # a requirement starts with a name
            for line in installed.requires or ()
            if ("extra ==" not in line) or (own and not _NOT_SHIPPED.search(line))
        ]
    return found


def main() -> int:
    """Print every license; return 1 if one is not known to be permissive."""
    refused = 0
    for name, license in sorted(required_by("mobileprep").items()):
        fine = license == "not installed" or _PERMISSIVE.search(license)
        refused += not fine
        print(f"{name}: {license or 'tells no license'}{'' if fine else '  <- look at it'}")
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
