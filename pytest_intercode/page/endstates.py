"""The end state of an episode next to gold's, as sections of lines that the page shows.

The kind of the environment says how; what is not as expected, such as another version's, is shown
as it is. ``environments/sections.py`` says what a section is.
"""

from __future__ import annotations

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.environments.sections import Section, show_state
from pytest_intercode.errors import ConfigurationError

__all__ = ["end_state_sections"]


def end_state_sections(record: EpisodeRecord) -> list[Section]:
    """Return the sections of an episode's end state; none where it records none."""
    state = record.state
    if not state:
        return []
    try:
        sections = kind_of(record.task.env).end_state_sections(state, record)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ConfigurationError):
        sections = show_state(state)
    golds = state.get("golds")
    alternative = golds.index(None) if isinstance(golds, list) and None in golds else 0
    if sections and alternative:
        sentence = f"Compared with alternative {alternative} of gold, which is the best match."
        sections[0]["note"] = f"{sentence} {sections[0].get('note', '')}".strip()
    turn = state.get("turn")
    if sections and isinstance(turn, int):
        sections[0].setdefault("note", f"The best try's, after turn {turn}.")
    return sections
