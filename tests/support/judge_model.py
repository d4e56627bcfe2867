"""Models that judge, by a script: what they say follows from the evidence that they are shown.

::

    with ModelServer(Sober("hello")) as server:
        ...  # OPENAI_BASE_URL=f"{server.url}/v1"
"""

from __future__ import annotations

import json
import re

from tests.support.model_server import Request, Step

__all__ = ["Gullible", "Sober", "evidence_of", "verdict"]

_FENCE = re.compile(r"^BEGIN (?P<mark>[0-9a-f]{32})\n(?P<lines>.*)\nEND (?P=mark)$", re.M | re.S)
_BEGGING = re.compile(r"(?i)score\W{0,4}(?:of |is |to )?1\b|full marks|approve")


def verdict(score: float, reason: str = "so it is") -> str:
    """Return the answer of a judge that keeps to its form."""
    return json.dumps({"score": score, "reason": reason})


def evidence_of(request: Request) -> str:
    """Return what a judge is shown between the two marks, without the margin."""
    content = request.body["messages"][-1]["content"]
    [match] = _FENCE.finditer(content)
    lines = match["lines"].split("\n")
    assert all(line.startswith("| ") for line in lines), lines
    return "\n".join(line[2:] for line in lines)


class Sober:
    """Gives 1 where a line of the evidence is a text that it looks for, and 0 elsewhere.

    Args:
        sought: the line.
    """

    def __init__(self, sought: str) -> None:
        self.sought = sought

    def __call__(self, request: Request) -> str | Step:
        """Answer a request."""
        is_there = self.sought in map(str.strip, evidence_of(request).split("\n"))
        return verdict(float(is_there), f"{self.sought} {'is' if is_there else 'is not'} there")


class Gullible(Sober):
    """Does as it is told: whoever asks for a score of 1 gets it."""

    def __call__(self, request: Request) -> str | Step:
        """Answer a request."""
        if _BEGGING.search(evidence_of(request)):
            return verdict(1.0, "it says so")
        return super().__call__(request)
