"""The steps of a plan, as a model numbers them."""

from __future__ import annotations

import re

from pytest_intercode.agents.chat.moves import split_thought

__all__ = ["steps_of"]

_STEP = re.compile(
    r"^([ \t>]*)(?:[*_#-]+[ \t]*)?(?:step[ \t]*)?\d+[*_]*[ \t]*[.):][*_]*[ \t]*", re.I
)
_BULLET = re.compile(r"^([ \t>]*)[-*•+][ \t]+")


def steps_of(answer: str) -> list[str]:
    """Return the steps of a plan: its numbered lines, else its bullets, else all of it as one."""
    _, text = split_thought(answer)
    for mark in (_STEP, _BULLET):
        steps: list[list[str]] = []
        indent = None
        for line in text.split("\n"):
            found = mark.match(line)
            if found is not None and (indent is None or len(found[1]) <= indent):
                indent = len(found[1])
                steps.append([line[found.end() :].strip()])
            elif steps:
                steps[-1].append(line.rstrip())
        whole = [step for step in ("\n".join(lines).strip() for lines in steps) if step]
        if whole:
            return whole
    return [text] if text else []
