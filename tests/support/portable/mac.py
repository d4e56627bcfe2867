"""A simulated Mac: its Python, in a mount namespace without what Linux alone has.

There is no ``/proc`` but for psutil, no ``/sys``, no socket of this machine's Docker engine, and
none of the programs in ``LINUX_PROGRAMS``. Paths of temporary files are as long as on a Mac, a
process may open as many files as there, and npm says that it is a Mac's. See ``macos`` for Python,
and for what is not simulated.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import ADDOPTS
from tests.support.portable.interpreter import PROCESSES, make_interpreter

__all__ = ["LINUX_PROGRAMS", "Mac", "obstacle"]

LINUX_PROGRAMS = (
    *("bwrap", "docker", "flock", "ip", "ionice", "iptables", "newgidmap", "newuidmap", "nft"),
    *("nsenter", "podman", "prlimit", "runc", "crun", "setpriv", "setsid", "systemctl"),
    *("systemd-run", "taskset", "timeout", "unshare"),
)
"""Programs that macOS does not come with, and bubblewrap and Docker's, which it may have."""

_SOCKETS = ("/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock")
# What the tests' own process has, and a user's does not.
_OURS = ("COLUMNS", "DOCKER_", "GITHUB_", "INTERCODE_", "PYTEST_", "PYTHON", "XDG_")
_MAX_FILES = 256  # open files of a process, as a terminal of macOS begins with

# What hides them, as root in a new mount namespace; then the command. The last mount is /proc's,
# which mount itself may look at.
_HIDE = """\
set -eu
processes=$1 files=$2
shift 2
while [ "$1" != -- ]; do
  mount --bind /dev/null "$1"
  shift
done
shift
ulimit -S -n "$files"
mount --bind /proc "$processes"
mount -t tmpfs -o ro,mode=555 none /sys
mount -t tmpfs -o ro,mode=555 none /proc
exec "$@"
"""


def obstacle() -> str:
    """Return why there can be none here, or nothing."""
    if sys.platform != "linux":
        return "a Mac is simulated on Linux"
    if os.geteuid():
        return "a mount namespace without /proc needs root"
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        return "mount namespaces cannot be made here"
    return ""


class Mac:
    """Starts commands as on a Mac.

    Args:
        folder: a folder of its own.
        docker_host: what ``DOCKER_HOST`` is; empty if it is not set.
        variables: further variables of the environment.

    Attributes:
        python: its Python.
        home: the user's folder.
    """

    def __init__(
        self, folder: Path, docker_host: str = "", variables: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self.python = make_interpreter(folder / "python")
        self.home = folder / "Users/me"
        self.home.mkdir(parents=True)
        # As there, a link leads to where temporary files are, and the path takes 49 bytes and more.
        temporary = "var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T"
        (folder / "private" / temporary).mkdir(parents=True)
        (folder / "var").symlink_to("private/var")
        self.variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith(_OURS)},
            "HOME": str(self.home),
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "TMPDIR": str(folder / temporary),
            "PYTEST_ADDOPTS": ADDOPTS,
            "npm_config_os": "darwin",
            "npm_config_cpu": "arm64",
            **({"DOCKER_HOST": docker_host} if docker_host else {}),
            **(variables or {}),
        }

    def command(self, *words: str | Path) -> list[str]:
        """Return what starts a command there; its process becomes the command's own."""
        folders = os.environ["PATH"].split(os.pathsep)
        places = [Path(folder, name) for folder in folders for name in LINUX_PROGRAMS]
        places += map(Path, _SOCKETS)
        hidden = sorted({str(path.resolve()) for path in places if path.exists()})
        return [
            *("unshare", "--mount", "sh", "-c", _HIDE, "sh"),
            *(str(self._folder / "python" / PROCESSES), str(_MAX_FILES), *hidden, "--"),
            *map(str, words),
        ]

    def start(self, *words: str | Path, folder: Path, **variables: str) -> subprocess.Popen[str]:
        """Start a command in a folder; its output is one text. Empty variables are not set."""
        return subprocess.Popen(
            self.command(*words),
            cwd=folder,
            env={name: value for name, value in (self.variables | variables).items() if value},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(
        self, *words: str | Path, folder: Path, timeout: float = 240, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, within a limit in seconds.

        Raises:
            TimeoutError: if it takes longer; it is killed then, with what it has started.
        """
        with self.start(*words, folder=folder, **variables) as process:
            try:
                output, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                raise TimeoutError(f"not in {timeout} s; it ended with {output[-4000:]}") from None
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def pytest(
        self, *options: str | Path, folder: Path, timeout: float = 240, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run pytest there, with the plugin as it is installed."""
        words = (self.python, "-m", "pytest", *options)
        return self.run(*words, folder=folder, timeout=timeout, **variables)
