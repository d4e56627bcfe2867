"""Facts: the lines that ``pytest-intercode doctor`` prints about a machine and a configuration.

Each part of the package describes itself: backends, agents, datasets, extras. The command only
prints these descriptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Fact"]


@dataclass(frozen=True)
class Fact:
    """One line about a machine or a configuration.

    Attributes:
        subject: the subject in a word or two, such as ``docker limits``.
        text: the state, and how to fix it if something is wrong; one line without secrets.
        state: ``ok`` if all is well, ``note`` if something optional is missing, ``problem`` if the
            subject cannot be used, or if the configuration asks for something that cannot run.
    """

    subject: str
    text: str
    state: Literal["ok", "note", "problem"] = "ok"

    def where(self, *, needed: bool) -> Fact:
        """Return the fact; a problem becomes a note if the subject is not needed."""
        if needed or self.state != "problem":
            return self
        return Fact(self.subject, self.text, "note")
