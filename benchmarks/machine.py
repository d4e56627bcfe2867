"""Facts about the machine that the numbers were measured on, without its name or its folders."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from functools import cache
from importlib.metadata import version

from benchmarks.measuring import Unavailable
from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.bubblewrap.process import find_program
from pytest_intercode.sandboxes.docker.engine import connect

__all__ = ["backends", "facts", "needs"]


@cache
def missing(backend: str) -> str:
    """Return why a backend is not available; empty if it is."""
    try:
        if backend == "docker":
            connect().close()
        else:
            find_program()
    except EngineUnavailable as reason:
        return str(reason)
    return ""


def needs(*names: str) -> None:
    """Check that backends are available.

    Raises:
        Unavailable: one is not.
    """
    for name in names:
        if missing(name):
            raise Unavailable(missing(name))


def backends() -> list[str]:
    """Return the available backends, Docker first.

    Raises:
        Unavailable: there is none.
    """
    found = [name for name in ("docker", "bubblewrap") if not missing(name)]
    if not found:
        raise Unavailable(f"{missing('docker')}; {missing('bubblewrap')}")
    return found


def facts() -> list[str]:
    """Return lines about the machine and its software."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    kernel = platform.release().partition("-")[0]
    load = os.getloadavg()[0]
    busy = "" if load < 0.5 else " (the machine has other work: times are too long)"
    return [
        f"{cores} cores ({platform.machine()}), {memory:.0f} GB of memory, Linux {kernel}",
        f"Python {platform.python_version()}, pytest {version('pytest')}, "
        f"pytest-intercode {version('pytest-intercode')}",
        f"{_docker()}; {_bubblewrap()}",
        f"load of the machine at the start: {load:.1f}{busy}",
    ]


def _docker() -> str:
    if missing("docker"):
        return "no Docker engine"
    link = connect()
    told = link.api.info()
    link.close()
    groups = told.get("CgroupVersion") or "1"
    return f"Docker Engine {told['ServerVersion']} ({told['Driver']}, control groups v{groups})"


def _bubblewrap() -> str:
    program = shutil.which("bwrap")
    if missing("bubblewrap") or program is None:
        return "no bubblewrap"
    return subprocess.run([program, "--version"], capture_output=True, text=True).stdout.strip()
