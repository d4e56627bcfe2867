"""The reaper: a small process that outlives its client and removes what the client left.

Sandboxes end by themselves when their client dies, because their keeper's input ends. The reaper
removes the rest: a container that was created but never started, or whose input another process
still holds open; and services, with their networks and volumes. It is in its own session, and waits
for a pipe: an orderly client writes a byte to it, while a pipe that just closes means that the
client died.

Run it as ``python -m pytest_intercode.sandboxes.docker.reaper LABEL=VALUE ADDRESS``; the address is
the engine's, in JSON.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pytest_intercode.system.forks import close_in_children

if TYPE_CHECKING:
    from docker import APIClient

    from pytest_intercode.sandboxes.docker.address import Address

__all__ = ["Reaper", "remove_all", "remove_container", "remove_network"]

_DISMISSAL = b"."
_EXIT_TIMEOUT = 0.1  # seconds after which a killed process is surely gone
_REMOVAL_TIMEOUT = 30.0  # seconds for removing everything that is left
_LOOK_INTERVAL = 0.3  # seconds
_CLEAN_LOOKS = 3  # consecutive checks that find nothing, until nothing is left
_MAX_TRIES = 20  # to remove a network whose last containers are about to end


class Reaper:
    """The client's side: starts the process, and dismisses it at the end.

    Args:
        label: the label of everything that is to be removed, with its value.
        address: where the engine is.
    """

    def __init__(self, label: str, address: Address) -> None:
        words = json.dumps(address.to_json())
        self._command = [sys.executable, "-m", __name__, label, words]
        self._process = self._start()
        close_in_children(self)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close_copies(self) -> None:
        """Close the copy of the pipe in a forked child, which would keep the reaper waiting."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.returncode = 0  # the parent waits for it

    def unleash(self) -> None:
        """Let the reaper, or a new one if it is gone, remove what is left; do not wait for it."""
        self._process.send_signal(signal.SIGCONT)  # in case it was stopped
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_TIMEOUT)
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = self._start()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.returncode = 0  # it ends by itself

    def dismiss(self) -> None:
        """Have the reaper end, as there is nothing to remove."""
        self._process.send_signal(signal.SIGCONT)  # in case it was stopped
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._process.communicate(_DISMISSAL, timeout=5)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def main(label: str, address: str) -> None:
    """Wait for the client's end; then remove everything with the label, until nothing is left."""
    if sys.stdin.buffer.read(1) == _DISMISSAL:
        return
    # Only now: in most runs there is nothing to remove.
    from pytest_intercode.errors import EngineUnavailable
    from pytest_intercode.sandboxes.docker.address import Address
    from pytest_intercode.sandboxes.docker.errors import client_errors
    from pytest_intercode.sandboxes.docker.link import Link

    deadline = time.monotonic() + _REMOVAL_TIMEOUT
    clean = 0
    link: Link | None = None
    while clean < _CLEAN_LOOKS and time.monotonic() < deadline:
        with contextlib.suppress(*client_errors(OSError, EngineUnavailable)):
            link = link or Link(Address.from_json(json.loads(address)))
            link.renew()
            removed, remaining = remove_all(link.api, label)
            # A start that was under way when the client died shows up a little later.
            clean = 0 if removed or remaining else clean + 1
        time.sleep(_LOOK_INTERVAL)
    if link is not None:
        link.close()


def remove_container(api: APIClient, container_id: str) -> bool:
    """Remove a container by force; return whether it existed.

    An engine may list a container that is gone: Docker 20.10 does so until it is restarted, if it
    was killed and removed the container while it started.

    Raises:
        docker.errors.APIError: it cannot be removed.
        requests.exceptions.RequestException: the engine does not answer.
    """
    from docker.errors import APIError

    try:
        api.remove_container(container_id, force=True, v=True)
    except APIError as error:
        # Podman answers 500 for a container that disappeared during the request.
        if error.status_code == 404 or "no such container" in str(error):
            return False
        if "already in progress" not in str(error):
            raise
    return True


def remove_network(api: APIClient, network_id: str) -> None:
    """Remove a network, and disconnect what is still in it and about to end.

    Raises:
        docker.errors.APIError: it cannot be removed.
        requests.exceptions.RequestException: the engine does not answer.
    """
    from docker.errors import APIError, NotFound

    for attempt in range(_MAX_TRIES):
        try:
            api.remove_network(network_id)
        except NotFound:
            return
        except APIError as error:
            if "active endpoints" not in str(error) or attempt == _MAX_TRIES - 1:
                raise
            for container_id in api.inspect_network(network_id).get("Containers") or ():
                with contextlib.suppress(APIError):
                    api.disconnect_container_from_network(container_id, network_id, force=True)
            time.sleep(_LOOK_INTERVAL / 10)
        else:
            return


def remove_all(
    api: APIClient, label: str, is_left: Callable[[Mapping[str, str]], bool] = lambda labels: True
) -> tuple[int, int]:
    """Remove the containers, then the networks, then the volumes with a label.

    Args:
        api: the engine's client.
        label: the label, with or without its value.
        is_left: returns whether something with these labels is to be removed.

    Returns:
        How many containers were removed, and how many things remain.

    Raises:
        docker.errors.DockerException: they cannot be listed.
        requests.exceptions.RequestException: the engine does not answer.
    """
    from pytest_intercode.sandboxes.docker.errors import client_errors

    filters = {"label": label}

    def volume(name: str) -> None:
        api.remove_volume(name, force=True)

    removed = remaining = 0
    # In this order, as the networks and volumes that a container uses cannot be removed.
    for rows, key, remove in (
        (api.containers(all=True, filters=filters), "Id", partial(remove_container, api)),
        (api.networks(filters=filters), "Id", partial(remove_network, api)),
        (api.volumes(filters=filters)["Volumes"] or (), "Name", volume),
    ):
        for row in rows:
            if not is_left(row.get("Labels") or {}):
                continue
            try:
                removed += remove(row[key]) or 0
            except client_errors():
                remaining += 1  # the next sweep tries it again
    return removed, remaining


if __name__ == "__main__":
    main(*sys.argv[1:])
