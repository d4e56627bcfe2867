"""A pytest plugin for measured runs: times of the run, and resources of the process.

Loaded by ``-p benchmarks.clock``. It writes one JSON file, which :mod:`benchmarks.runs` reads; the
variable ``BENCHMARK_CLOCK`` names it. Without the variable, the plugin does nothing.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SAMPLES = 10  # a sample is taken after every so many items


class Clock:
    """Records times (of the clock that all processes share), memory and descriptors."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told: dict[str, Any] = {"passed": 0, "failed": [], "samples": []}
        self._items = 0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Iterator[None]:
        """Time the run loop: all items, from the first setup to the last teardown."""
        began = time.process_time()
        self._told["loop_began"] = time.monotonic()
        try:
            return (yield)
        finally:
            self._told["loop_ended"] = time.monotonic()
            self._told["processor"] = time.process_time() - began
            self._told["peak"] = _memory("VmHWM")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the items that passed; take samples of the process."""
        if report.when == "call" and report.passed:
            self._told["passed"] += 1
        elif report.outcome != "passed":
            self._told["failed"].append(report.nodeid)
        if report.when == "teardown":
            self._items += 1
            if self._items % _SAMPLES == 0:
                descriptors = len(list(Path("/proc/self/fd").iterdir()))
                self._told["samples"].append([self._items, _memory("VmRSS"), descriptors])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_unconfigure(self) -> Iterator[None]:
        """Record when the run has released everything; write the file."""
        try:
            return (yield)
        finally:
            self._told["closed"] = time.monotonic()
            self._path.write_text(json.dumps(self._told))


def _memory(what: str) -> int:
    """Return the process's resident memory in bytes, now or at its peak, without children."""
    status = Path("/proc/self/status").read_text()
    match = re.search(rf"^{what}:\s+(\d+) kB", status, re.M)
    return int(match[1]) * 1024 if match else 0


def pytest_configure(config: pytest.Config) -> None:
    """Register the clock, if the variable is set."""
    path = os.environ.get("BENCHMARK_CLOCK")
    if path and not hasattr(config, "workerinput"):  # reports of workers reach the controller
        config.pluginmanager.register(Clock(Path(path)), "benchmark-clock")
