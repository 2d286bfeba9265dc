"""Refuses what mobileprep needs at run time under a licence that is not permissive.

    python tools/licences.py

It goes over the distributions that are installed here, from mobileprep's own requirements on, those
of its extras included; what is not installed is told and passed over.
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
_LONGEST = 200  # where the text of a licence stands in place of its name


def licence_of(found: Distribution) -> str:
    """What a distribution says of its licence, from its most to its least exact field."""
    facts = found.metadata
    listed = [c for c in facts.get_all("Classifier") or [] if c.startswith("License ::")]
    told = facts.get("License-Expression") or "; ".join(listed) or facts.get("License") or ""
    return told[:_LONGEST].replace("\n", " ")


def required_by(name: str) -> dict[str, str]:
    """The licences of all that a distribution requires, directly or not, by name."""
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
        found[here] = licence_of(installed)
        own = here == name
        waiting += [
            _NAME.match(line)[0].lower()  # type: ignore[index] # a requirement begins with a name
            for line in installed.requires or ()
            if ("extra ==" not in line) or (own and not _NOT_SHIPPED.search(line))
        ]
    return found


def main() -> int:
    """Print every licence; 1 where one is none of those that are known to be permissive."""
    refused = 0
    for name, licence in sorted(required_by("mobileprep").items()):
        fine = licence == "not installed" or _PERMISSIVE.search(licence)
        refused += not fine
        print(f"{name}: {licence or 'tells no licence'}{'' if fine else '  <- look at it'}")
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
