"""The client of the starter: begins it, sends it requests, and reports why it cannot begin."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

if sys.platform != "linux":
    raise ImportError("bubblewrap runs on Linux only")

from pytest_intercode.errors import EngineUnavailable, SandboxError
from pytest_intercode.sandboxes.bubblewrap.starter import IDS
from pytest_intercode.sandboxes.inside import text_of
from pytest_intercode.sandboxes.messages import receive, send
from pytest_intercode.system.forks import close_in_children

__all__ = [
    *("NOBODY", "StarterLost", "StarterProcess", "find_forbidding_setting", "find_program"),
    "find_version",
]

_ANSWER_TIMEOUT = 30.0  # seconds for the starter to answer, on a busy machine
_MODULES = (
    *("messages", "egress.namespace"),
    *("bubblewrap.mounts", "bubblewrap.rights", "bubblewrap.preforker", "bubblewrap.starter"),
)
_MIN_VERSION = (0, 5)  # older versions were not tested
_ID_RANGE = re.compile(r"^([^:\n]+):(\d+):(\d+)[ \t]*$", re.MULTILINE)  # subuid(5)
NOBODY = 65534
"""The user that root becomes if it starts sandboxes as an ordinary user does."""

_SETTINGS = (
    ("kernel/unprivileged_userns_clone", "0", "1"),
    ("user/max_user_namespaces", "0", "10000"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
)


def find_program() -> str:
    """Return the path of bubblewrap.

    Raises:
        EngineUnavailable: it is not installed, or too old.
    """
    program = shutil.which("bwrap", path=os.environ.get("PATH", "") + ":/usr/bin:/usr/local/bin")
    if program is None:
        raise EngineUnavailable(
            "bubblewrap is not installed: `apt-get install bubblewrap` on Debian and Ubuntu, or "
            "use Docker: --intercode-sandbox=docker"
        )
    version = _read_version(program)
    if version and version < _MIN_VERSION:
        raise EngineUnavailable(
            f"bubblewrap {_format_version(version)} is too old: {_format_version(_MIN_VERSION)} "
            "or newer is needed, which Debian 12 and Ubuntu 22.04 have"
        )
    return program


def find_version() -> str:
    """Return the version that bubblewrap reports.

    Raises:
        EngineUnavailable: it is not installed, or too old.
    """
    return _format_version(_read_version(find_program())) or "of an unknown version"


@cache
def _read_version(program: str) -> tuple[int, ...]:
    """Return the version of bubblewrap, or nothing if it cannot be determined."""
    try:
        result = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()  # starting it will show what is wrong
    match = re.search(r"(\d+)\.(\d+)", result.stdout)
    return tuple(map(int, match.groups())) if match else ()


def _format_version(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def find_forbidding_setting(settings: Path = Path("/proc/sys")) -> str:
    """Return the kernel setting that keeps ordinary users from making sandboxes, or nothing."""
    for name, bad, good in _SETTINGS:
        with contextlib.suppress(OSError):
            if (settings / name).read_text().strip() == bad:
                dotted = name.replace("/", ".")
                return f"the kernel's setting {dotted} is {bad}: `sysctl -w {dotted}={good}`"
    return ""


class StarterLost(SandboxError):
    """The starter, or a process that waits in it for a command, ended or does not answer."""


class StarterProcess:
    """A running starter.

    Args:
        filtered: the filter of system calls, if there is one.
        groups: patterns of the control groups that it removes when we are gone.
        procs: descriptors to which the first sandboxes' processes write to enter their groups.
        prefork: how many such processes wait for a command at any time.
        root: start sandboxes with root's rights, if we are root; else as an ordinary user does, and
            root becomes nobody for that.
        shared: folders of the host that sandboxes see, with the covered folders in each.

    Attributes:
        all_ids: sandboxes know all users and groups, not only root.
        readable: we may read the files in a sandbox, whichever user owns them.

    Raises:
        EngineUnavailable: sandboxes cannot be made here; the message says why.
    """

    def __init__(
        self,
        filtered: bytes,
        groups: list[str],
        procs: Iterable[int],
        prefork: int,
        root: bool,
        shared: dict[str, list[str]],
    ) -> None:
        self._program = "" if root else find_program()
        self.readable = root
        self._user = NOBODY if os.geteuid() == 0 and not root else None
        self._lock = threading.Lock()
        self._unresponsive = False  # a request got no answer
        self._channel, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(_ANSWER_TIMEOUT)
        with inner:
            try:
                self._process = self._start(inner.fileno())
            except OSError as error:
                self._channel.close()
                raise EngineUnavailable(f"bubblewrap cannot be started: {error}") from None
        close_in_children(self)
        try:
            # In memory, where the starter can open it again, whichever user it runs as.
            with os.fdopen(os.memfd_create("filter", os.MFD_CLOEXEC), "wb") as file:
                file.write(filtered)
                file.flush()
                hello = {"do": "hello", "groups": groups, "filtered": bool(filtered)}
                hello |= {"shared": shared, "prefork": prefork}
                answer, _ = self._exchange(hello, [*[file.fileno()] * 3, *procs])
        except (OSError, SandboxError) as error:
            raise self._unavailable(str(error)) from None
        self.all_ids = bool(answer["all_ids"])

    def _start(self, channel: int) -> subprocess.Popen[bytes]:
        text = text_of("pytest_intercode.sandboxes", *_MODULES)
        interpreter = sys.executable
        if self._user is not None:  # ours may be where only root can read
            interpreter = shutil.which("python3", path="/usr/bin:/usr/local/bin") or interpreter
        python = [interpreter, "-I", "-S", "-c", text, str(channel)]
        if self.readable:
            return self._popen([*python, "own"], (channel,))
        command = [self._program, "--unshare-user", "--uid", "0", "--gid", "0", "--cap-add", "ALL"]
        command += ["--dev-bind", "/", "/"]
        program = ["--", *python, "shared"]
        if self._user is None:
            firsts = [_find_id_range(f"/etc/sub{kind}id") for kind in "ug"]
            tools = [shutil.which(f"new{kind}idmap") for kind in "ug"]
            if all(firsts) and all(tools):
                maps = [
                    [str(tool), str(own_id), "1", "1", str(first), str(IDS - 1)]
                    for tool, own_id, first in zip(
                        tools, (os.getuid(), os.getgid()), firsts, strict=True
                    )
                ]
                process = self._start_with_ids(command, program, channel, maps)
                if process is not None:
                    return process
        return self._popen([*command, *program], (channel,))

    def _start_with_ids(
        self, command: list[str], program: list[str], channel: int, maps: list[list[str]]
    ) -> subprocess.Popen[bytes] | None:
        """Start it with the ids that are assigned to us; None if they cannot be used after all.

        They cannot if the tools have no rights, or in a container that does not have these ids.
        """
        info, info_end = os.pipe()
        block_end, block = os.pipe()
        extra = ["--info-fd", str(info_end), "--userns-block-fd", str(block_end)]
        process = self._popen([*command, *extra, *program], (channel, info_end, block_end))
        os.close(info_end)
        os.close(block_end)
        is_mapped = False
        with os.fdopen(info) as file, contextlib.suppress(OSError):
            if match := re.search(r'"child-pid": (\d+)', file.read()):
                is_mapped = all(
                    subprocess.run([tool, match[1], "0", *ids], capture_output=True).returncode == 0
                    for tool, *ids in maps
                )
                if is_mapped:
                    os.write(block, b"..")
                else:
                    os.kill(int(match[1]), signal.SIGKILL)
        os.close(block)
        if is_mapped:
            return process
        process.kill()
        process.communicate()
        return None

    def _popen(self, command: list[str], descriptors: Iterable[int]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            pass_fds=tuple(descriptors),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
            user=self._user,
            group=self._user,
            extra_groups=None if self._user is None else [],
        )

    def _unavailable(self, problem: str) -> EngineUnavailable:
        self._channel.close()
        self._process.kill()
        output = self._process.communicate()[1].decode("utf-8", "replace").strip()
        words = output.splitlines()[-1] if output else problem
        hint = find_forbidding_setting() if not self.readable else ""
        return EngineUnavailable(
            f"bubblewrap cannot make sandboxes here: {hint or words}"
            + ("" if hint else " (a container must allow user namespaces and mounts)")
        )

    def ask(
        self, message: dict[str, Any], descriptors: Iterable[int] = (), more_seconds: float = 0.0
    ) -> tuple[dict[str, Any], list[int]]:
        """Send a request and return its answer, with the descriptors that belong to it.

        Args:
            message: the request.
            descriptors: the descriptors that are sent with it.
            more_seconds: how much longer than other requests it may take.

        Raises:
            SandboxError: the request failed.
            StarterLost: the starter, or its process for the request, is gone.
        """
        with self._lock:
            usual = self._channel.gettimeout() or _ANSWER_TIMEOUT
            try:
                self._channel.settimeout(usual + more_seconds)
                return self._exchange(message, descriptors)
            except OSError as error:
                # Its answer may still come, and would be taken for the answer to another request.
                self._unresponsive = True
                raise StarterLost(f"bubblewrap's starter does not answer: {error}") from None
            finally:
                with contextlib.suppress(OSError):  # it was closed
                    self._channel.settimeout(usual)

    def _exchange(
        self, message: dict[str, Any], descriptors: Iterable[int]
    ) -> tuple[dict[str, Any], list[int]]:
        send(self._channel, message, list(descriptors))
        answer, received = receive(self._channel)
        if answer is None:
            self._unresponsive = True
            raise StarterLost("bubblewrap's starter has ended")
        if "error" in answer:
            raise (StarterLost if answer.get("lost") else SandboxError)(str(answer["error"]))
        return answer, received

    def ended(self, timeout: float = 0.0) -> bool:
        """Whether it has ended, or ends within so many seconds."""
        if not timeout:
            return self._process.poll() is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        return self._process.returncode is not None

    def answers(self) -> bool:
        """Whether it still works: it has not ended, and left no request without an answer."""
        return not (self._unresponsive or self.ended())

    def close(self) -> None:
        """End it, and with it everything that it started."""
        self._channel.close()
        self._process.send_signal(signal.SIGCONT)  # in case it was stopped
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def close_copies(self) -> None:
        """Close a forked child's copy of the socket."""
        self._channel.close()
        self._process.returncode = 0  # its parent waits for it


def _find_id_range(path: str) -> int | None:
    """Return the first of the ids that are assigned to this user, if there are enough."""
    try:
        names = {str(os.getuid()), pwd.getpwuid(os.getuid()).pw_name}
        for name, first, count in _ID_RANGE.findall(Path(path).read_text()):
            if name in names and int(count) >= IDS - 1:
                return int(first)
    except (OSError, KeyError):
        pass
    return None
