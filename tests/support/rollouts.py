"""A rollout's phases, one after the other, as the plugin goes through them."""

from __future__ import annotations

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.rollouts.rollout import Rollout

__all__ = ["play"]


def play(rollout: Rollout) -> EpisodeRecord:
    """Go through all phases, and close what they opened."""
    try:
        environment = rollout.make_environment()
        rollout.prepare(environment)
        return rollout.run(rollout.make_agent(), environment)
    finally:
        rollout.close()
