"""Puts the page where it belongs, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_intercode.errors import ConfigurationError

__all__ = ["put"]


def put(target: Path, text: str) -> None:
    """Write a file beside its place, then move it there.

    Raises:
        ConfigurationError: it cannot be written.
    """
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.write_text(text, encoding="utf-8")
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"{target}: the page cannot be written: {error.strerror}"
        ) from None
