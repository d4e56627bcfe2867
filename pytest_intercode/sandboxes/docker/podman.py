"""Podman behind Docker's API: where its requests have to differ.

This writes one file, the filter of system calls, to the user's cache.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.seccomp import profile
from pytest_intercode.system.files import cache_folder
from pytest_intercode.system.platform import hard_limit

__all__ = ["REMOTE_PODMAN", "Podman", "is_podman"]

REMOTE_PODMAN = (
    "Podman takes the list of system calls from a file, so it has to be on this machine, and not "
    "in a virtual one (podman machine); take Docker there: on a Mac Colima, OrbStack, Docker "
    "Desktop or Rancher Desktop"
)
"""Why Podman on another machine cannot be used, and what can be used instead."""

_MAX_LIMITS = {"nofile": 1 << 20, "nproc": 1 << 15}


def is_podman(facts: Mapping[str, Any]) -> bool:
    """Whether the engine that reports these facts is Podman."""
    return "BuildahVersion" in facts


class Podman:
    """Adapts requests to Podman.

    Args:
        facts: what the engine reports about itself.

    Attributes:
        runtime: its default runtime; for a container, it reports only ``oci``.

    Raises:
        EngineUnavailable: the filter's file cannot be written.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.runtime = str(facts.get("DefaultRuntime") or "unknown")
        self._options = [f"seccomp={_filter_file()}"]
        if str(facts.get("CgroupVersion")) == "1":
            # There it is a tmpfs without a size, and the list of read-only paths has no effect.
            self._options.append("mask=/sys/fs/cgroup")

    def adapted(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the limits of a container in the form that Podman expects."""
        options = [option for option in config["SecurityOpt"] if not option.startswith("seccomp=")]
        # In a container, Podman may not set its own high defaults; these it may set.
        limits = [
            {"Name": kind, "Soft": limit, "Hard": limit}
            for kind, maximum in _MAX_LIMITS.items()
            if (present := hard_limit(kind)) is not None and (limit := min(present, maximum)) > 0
        ]
        return {
            **config,
            "SecurityOpt": [*options, *self._options],
            "Ulimits": [*config["Ulimits"], *limits],
        }


def _filter_file() -> str:
    """Write the filter to a file: Podman expects its path, where Docker expects its content."""
    text = profile()
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = cache_folder() / f"seccomp-{digest[:12]}.json"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{secrets.token_hex(4)}")
            part.write_text(text)
            part.replace(path)
    except OSError as error:
        raise EngineUnavailable(f"{path} is needed for Podman: {error.strerror}") from None
    return str(path)
