"""A parser of what ``prove`` prints: ``t/sums.t .. ok``."""

from __future__ import annotations

import re


def parse_prove(log: str) -> dict[str, str]:
    """Return the status of each file of tests."""
    lines = re.findall(r"^(\S+\.t) \.+ (ok|Failed|Dubious)", log, re.MULTILINE)
    return {name: "PASSED" if word == "ok" else "FAILED" for name, word in lines}
