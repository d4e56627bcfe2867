"""The masks for what a run writes: keys that it knows, and in recordings more than that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.gateway.masking import Masks
from pytest_intercode.plugin.settings import Settings

__all__ = ["headline_of", "key_masks_of", "masks_of"]

_MASKS = pytest.StashKey[Masks]()
_KEY_MASKS = pytest.StashKey[Masks]()


def masks_of(config: pytest.Config) -> Masks:
    """Return the masks for recordings: known keys, likely keys, and names of this machine."""
    if _MASKS not in config.stash:
        config.stash[_MASKS] = Masks.of_machine(Settings.of(config).secrets)
    return config.stash[_MASKS]


def key_masks_of(config: pytest.Config) -> Masks:
    """Return the masks for results and reports: only the known keys.

    A text that only looks like a key may be a part of a task, whose record is used to regrade it.
    """
    if _KEY_MASKS not in config.stash:
        config.stash[_KEY_MASKS] = Masks.of_keys(Settings.of(config).secrets)
    return config.stash[_KEY_MASKS]


def headline_of(record: EpisodeRecord, config: pytest.Config) -> str:
    """Return the headline of a record, masked before shortening, which may cut a key in two."""
    return replace(record, reason=key_masks_of(config).text(record.reason)).headline
