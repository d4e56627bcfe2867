"""The test that every task becomes. pytest collects this module once for each suite."""

from __future__ import annotations

from pytest_intercode.plugin.fixtures import PendingEpisode


def test_solves(intercode_episode: PendingEpisode) -> None:
    """The agent brings the task's reward to 1.0."""
    episode = intercode_episode.run()
    if not episode.solved:
        intercode_episode._fail(episode)
