"""Facts: what ``pytest-intercode doctor`` says of a machine and a configuration, one line each.

Each part of the package describes itself: backends, agents, datasets, extras. The command only
prints what they say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Fact"]


@dataclass(frozen=True)
class Fact:
    """One line about a machine or a configuration.

    Attributes:
        subject: what it is about, in a word or two, such as ``docker limits``.
        text: how it is, and what to do where it is not as it should be; one line without secrets.
        state: ``ok`` for what is as it should be, ``note`` where something optional is missing,
            ``problem`` where it cannot be used, or what the configuration asks for cannot run.
    """

    subject: str
    text: str
    state: Literal["ok", "note", "problem"] = "ok"

    def where(self, *, needed: bool) -> Fact:
        """Return the same about something that is needed, or not: then a problem is a note."""
        if needed or self.state != "problem":
            return self
        return Fact(self.subject, self.text, "note")
