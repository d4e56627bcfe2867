"""A Ray cluster of two nodes, of which one has a network, a disk and processes of its own.

That node is led to this machine by a cable of its own (a pair of veth), which can be cut. What it
writes is on a small disk in memory, which can be filled. It needs root.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support.ray_cluster import PYTHON, RayCluster, needs_ray

__all__ = ["ClusterApart"]

_HERE, _THERE = "198.18.78.1", "198.18.78.2"  # addresses for tests, by RFC 2544
_OBJECTS = "--object-store-memory=100000000"
_PATIENCE = 90.0
_numbers = itertools.count()
_NODE = """
set -e
mount -t tmpfs -o size=$1 tmpfs "$2"
mount -t tmpfs -o size=200m tmpfs /dev/shm
mount -t tmpfs -o size=1m tmpfs "$3"
mkdir -p "$2/tmp" "$2/cache"
export TMPDIR=$2/tmp XDG_CACHE_HOME=$2/cache
ip link set lo up
read -r _
shift 3
exec "$@"
"""


class ClusterApart(RayCluster):
    """The cluster; what it inherits is of the first node, which is the head's.

    Args:
        hidden: a folder of this machine that the second node does not see.
        size: of the second node's disk.
    """

    def __init__(self, hidden: Path, size: str = "300m") -> None:
        needs_ray()
        if os.geteuid() or not all(map(shutil.which, ("unshare", "ip"))):
            pytest.skip("a node with a network of its own needs root, unshare and ip")
        self._size = size
        self._hidden = hidden
        super().__init__(2)

    def __post_init__(self) -> None:
        """Start both nodes."""
        self._folder = tempfile.mkdtemp(prefix="ica", dir="/tmp")
        self._disk = Path(self._folder) / "r"
        self._disk.mkdir()
        self.variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self._cable = f"ica{os.getpid() % 100_000:05d}{next(_numbers)}"
        env = {
            **os.environ,
            **self.variables,
            **{"RAY_memory_monitor_refresh_ms": "0", "RAY_USAGE_STATS_ENABLED": "0"},
            **{"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "4"},
            "RAY_health_check_initial_delay_ms": "0",
        }
        self._log = (Path(self._folder) / "log").open("wb")
        unshared = (
            "unshare",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        )
        address = f"{_HERE}:{_free_port()}"
        ray = (str(PYTHON.with_name("ray")), "start", "--block", "--num-cpus=1", _OBJECTS)
        self.apart = subprocess.Popen(
            [
                *(*unshared, "sh", "-c", _NODE, "sh", self._size, str(self._disk)),
                str(self._hidden),
                *(*ray, f"--address={address}", f"--node-ip-address={_THERE}"),
            ],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            env=env,
            start_new_session=True,
        )
        try:
            self._plug_in()
            self.process = subprocess.Popen(
                [
                    *(*ray, "--head", f"--port={address.rpartition(':')[2]}"),
                    *(f"--node-ip-address={_HERE}", "--include-dashboard=false"),
                    f"--temp-dir={self._disk}",
                ],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                env=env,
                start_new_session=True,
            )
            self._wait(lambda: _listens(address))
            assert self.apart.stdin is not None
            self.apart.stdin.write(b"go\n")
            self.apart.stdin.close()
            self._wait(lambda: self._said().count("Ray runtime started") == 2)
        except BaseException:
            self.close()
            raise
        self.address = address

    def _said(self) -> str:
        return (Path(self._folder) / "log").read_text("utf-8", "replace")

    def _wait(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + _PATIENCE
        while not condition():
            if time.monotonic() > end or self.apart.poll() is not None:
                raise RuntimeError(f"the cluster does not start: {self._said()[-3000:]}")
            time.sleep(0.1)

    def _inside(self) -> int:
        """Return the first process of the second node's namespaces."""
        pids: list[int] = []

        def there() -> bool:
            pids[:] = [child.pid for child in psutil.Process(self.apart.pid).children()]
            return bool(pids) and os.stat(f"/proc/{pids[0]}/ns/net") != os.stat(  # noqa: PTH116
                "/proc/self/ns/net"
            )

        self._wait(there)
        return pids[0]

    def _plug_in(self) -> None:
        self._pid = self._inside()
        inside = ("nsenter", "--net", "--target", str(self._pid))
        peer = ("peer", "eth9", "netns", str(self._pid))
        for command in (
            ("ip", "link", "add", self._cable, "type", "veth", *peer),
            ("ip", "address", "add", f"{_HERE}/30", "dev", self._cable),
            ("ip", "link", "set", self._cable, "up"),
            (*inside, "ip", "address", "add", f"{_THERE}/30", "dev", "eth9"),
            (*inside, "ip", "link", "set", "eth9", "up"),
        ):
            subprocess.run(command, check=True, capture_output=True)

    def cut(self) -> None:
        """Cut the cable, of which nobody is told."""
        command = ["nsenter", "--net", "--target", str(self._pid), "ip", "link", "set", "eth9"]
        subprocess.run([*command, "down"], check=True)

    def fill(self) -> None:
        """Fill the second node's disk."""
        place = Path(f"/proc/{self._pid}/root{self._disk}/filler")
        with contextlib.suppress(OSError), place.open("wb", buffering=0) as file:
            while file.write(bytes(1024**2)):
                pass

    def processes_apart(self) -> list[psutil.Process]:
        """Return the processes of the second node, without the shell that is its first one."""
        try:
            return psutil.Process(self._pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def close(self) -> None:
        """End both nodes."""
        for started in filter(None, (getattr(self, "process", None), self.apart)):
            with contextlib.suppress(psutil.Error):
                first = psutil.Process(started.pid)
                for process in [first, *first.children(recursive=True)]:
                    with contextlib.suppress(psutil.Error):
                        process.kill()
            started.wait()
            if started.stdin is not None:
                started.stdin.close()
        subprocess.run(["ip", "link", "delete", self._cable], check=False, capture_output=True)
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 1):
            return True
    except OSError:
        return False
