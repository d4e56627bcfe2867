"""Your own assertions about an episode, through the same fixtures."""

from __future__ import annotations

import pytest


@pytest.mark.intercode(suite="notes.yaml", ids="count-notes")
def test_counts_in_one_turn(intercode_episode):
    assert intercode_episode.reward == 1.0
    assert len(intercode_episode.turns) <= 2
