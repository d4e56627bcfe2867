"""A Ray cluster for tests, and pytest runs on it, where Ray is installed."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import files, requires
from pathlib import Path
from typing import Any

import psutil
import pytest
from packaging.requirements import Requirement

from tests.conftest import ADDOPTS
from tests.support.backends import is_keeper

__all__ = ["NODE", "PYTHON", "RayCluster", "Running", "linked_packages", "needs_ray"]

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-ray/bin/python"
NODE = "ray::Node"  # what Ray calls the processes of ours


def needs_ray() -> None:
    """Skip a test where Ray is not installed."""
    if not PYTHON.exists():
        pytest.skip("Ray is not installed: scripts/test --all does it, into .venv-ray")


def linked_packages(folder: Path, *names: str) -> Path:
    """Return a folder with packages that the environment of Ray has not, for ``PYTHONPATH``.

    Args:
        folder: where links to the packages of this environment are made, and to what they need.
        names: the packages.
    """
    packages = Path(pytest.__file__).parents[1]
    pending, linked = list(names), set[str]()
    while pending:
        name = pending.pop()
        if name in linked:
            continue
        linked.add(name)
        for requirement in map(Requirement, requires(name) or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                pending.append(requirement.name)
        for top in {file.parts[0] for file in files(name) or ()} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(packages / top)
    return folder


@dataclass
class Running:
    """A run of pytest on a cluster.

    Attributes:
        process: pytest's.
        folder: where it runs.
        said: what it has printed, once it has ended.
    """

    process: subprocess.Popen[str]
    folder: Path
    said: str = ""

    def wait(self, timeout: float = 150) -> int:
        """Wait for the end of it; return its exit code."""
        self.said, _ = self.process.communicate(timeout=timeout)
        return self.process.returncode

    def rows(self, name: str = "run.jsonl") -> list[dict[str, Any]]:
        """Return the rows of its results file that are whole."""
        path = self.folder / name
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Wait until something is so while it runs."""
        end = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                self.wait()
                pytest.fail(f"it did not come to that: {self.said}")
            time.sleep(0.05)


@dataclass
class RayCluster:
    """A cluster of some nodes on this machine, with a token.

    Attributes:
        nodes: how many.
        address: where it listens.
        variables: what a driver needs to be let in.
    """

    nodes: int
    address: str = ""
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="ic-test-", dir="/tmp")
        token = secrets.token_hex(32)
        self.variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        variables = {"RAY_memory_monitor_refresh_ms": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        # A dead raylet is noticed within seconds here, and in a quarter of a minute by default.
        variables |= {
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_failure_threshold": "4",
        }
        variables |= {"RAY_health_check_initial_delay_ms": "0"}
        self.process = subprocess.Popen(
            [
                *(PYTHON, "-m", "pytest_intercode.rollouts.cluster.local"),
                *(str(self.nodes), self._folder),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **self.variables, **variables},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the cluster did not start"
        self.address = json.loads(line)["address"]

    def start(self, folder: Path, *arguments: str, **variables: str) -> Running:
        """Start pytest in a folder, on this cluster and on bubblewrap."""
        process = subprocess.Popen(
            [
                *(PYTHON, "-m", "pytest", "-p", "no:cacheprovider"),
                "--intercode-sandbox=bubblewrap",
                *(f"--intercode-cluster={self.address}", *arguments),
            ],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.variables, "PYTEST_ADDOPTS": ADDOPTS, **variables},
        )
        return Running(process, folder)

    def run(self, folder: Path, *arguments: str, **variables: str) -> Running:
        """Run pytest to its end."""
        running = self.start(folder, *arguments, **variables)
        running.wait()
        return running

    def players(self) -> list[psutil.Process]:
        """Return the processes of ours on all nodes."""
        return [process for process, name, _ in self._all() if name.startswith(NODE)]

    def raylets(self) -> list[psutil.Process]:
        """Return the nodes' own processes; the first is the head's."""
        return [process for process, _, program in self._all() if program == "raylet"]

    def services(self) -> list[psutil.Process]:
        """Return the processes that hold the cluster together."""
        programs = ("raylet", "gcs_server")
        return [process for process, _, program in self._all() if program in programs]

    def below(self) -> list[psutil.Process]:
        """Return all processes of the cluster."""
        return [process for process, *_ in self._all()]

    def _all(self) -> list[tuple[psutil.Process, str, str]]:
        """Return the processes below ours, with their command lines and their programs."""
        processes = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                processes.append((child, " ".join(child.cmdline()), Path(child.exe()).name))
        return processes

    def sandboxes(self) -> list[psutil.Process]:
        """Return the first processes of sandboxes on all nodes."""
        return [process for process, *_ in self._all() if is_keeper(process)]

    def close(self) -> None:
        """End it."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
