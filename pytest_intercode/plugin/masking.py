"""What is masked in what a run writes: keys that it knows, and more of it in recordings."""

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
    """Return what no recording holds: keys, known or by their form, and names of this machine."""
    if _MASKS not in config.stash:
        config.stash[_MASKS] = Masks.of_machine(Settings.of(config).secrets)
    return config.stash[_MASKS]


def key_masks_of(config: pytest.Config) -> Masks:
    """Return what no result and no report holds: the keys that are known.

    A text that only looks like a key may be a part of a task, which is graded again by its record.
    """
    if _KEY_MASKS not in config.stash:
        config.stash[_KEY_MASKS] = Masks.of_keys(Settings.of(config).secrets)
    return config.stash[_KEY_MASKS]


def headline_of(record: EpisodeRecord, config: pytest.Config) -> str:
    """Return the headline of a record, without keys: it is shortened, which may cut one in two."""
    return replace(record, reason=key_masks_of(config).text(record.reason)).headline
