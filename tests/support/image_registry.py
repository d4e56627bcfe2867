"""A registry of images for tests: the program of Debian's package docker-registry, on 127.0.0.1.

``scripts/test --all`` unpacks it into build/; nothing is installed, and no service is started.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

__all__ = ["PASSWORD", "USER", "ImageRegistry", "registry_program"]

USER, PASSWORD = "ada", "correct horse"
_HASH = "$2y$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2"  # of that password
_UNPACKED = Path(__file__).parents[2] / "build/docker-registry/usr/bin/docker-registry"
_PATIENCE = 20.0


def registry_program() -> str:
    """Return where the program is; the test is skipped where it is not."""
    program = shutil.which("docker-registry") or (str(_UNPACKED) if _UNPACKED.exists() else "")
    if not program:
        pytest.skip("docker-registry is not installed: scripts/test --all unpacks it")
    return program


class ImageRegistry:
    """Starts the program.

    Args:
        folder: for what it stores; two of them may have the same.
        port: where it listens; 0 for a port that is free.
        users: it lets in :data:`USER` alone, by :data:`PASSWORD`.
        readonly: it takes nothing.
        network: a process whose network it listens in; None for this one's.

    Attributes:
        where: ``HOST:PORT``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        users: bool = False,
        readonly: bool = False,
        network: int | None = None,
    ) -> None:
        self.port = port or _free_port()
        self.where = f"127.0.0.1:{self.port}"
        self._network = network
        self._log = folder / f"log-{self.port}"
        self._config = folder / f"config-{self.port}.json"  # which is YAML, too
        (folder / "users").write_text(f"{USER}:{_HASH}\n")
        config: dict[str, object] = {
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {
                "filesystem": {"rootdirectory": str(folder / "data")},
                "maintenance": {"readonly": {"enabled": readonly}},
            },
            "http": {"addr": self.where, "secret": "of the tests"},
        }
        if users:
            config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "users")}}
        self._config.write_text(json.dumps(config))
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        inside = [] if self._network is None else ["nsenter", "--net", "-t", str(self._network)]
        if inside:
            subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*inside, registry_program(), "serve", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + _PATIENCE
        while not self._answers():
            assert time.monotonic() < end, self._log.read_text()[-2000:]
            time.sleep(0.02)

    def _answers(self) -> bool:
        if self._network is not None:  # it is out of our reach
            check = ["nsenter", "--net", "-t", str(self._network), "ss", "-Hltn"]
            output = subprocess.run(check, capture_output=True, text=True, check=True).stdout
            return self.where in output
        try:
            self._ask("/v2/")
        except URLError:
            return False
        return True

    def _ask(self, path: str) -> dict[str, object]:
        pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request = Request(f"http://{self.where}{path}", headers={"Authorization": f"Basic {pair}"})
        with urlopen(request, timeout=10) as answer:
            document: dict[str, object] = json.load(answer)
        return document

    def tags(self, repository: str = "pytest-intercode") -> list[str]:
        """Return the tags of a repository."""
        try:
            names = self._ask(f"/v2/{repository}/tags/list")["tags"]
        except HTTPError:
            return []
        return sorted(names) if isinstance(names, list) else []

    def write_credentials(self, folder: Path) -> None:
        """Write what ``docker login`` would, for ``DOCKER_CONFIG``."""
        pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({"auths": {self.where: {"auth": pair}}}))

    def stop(self) -> None:
        """End it; what it has stored stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
