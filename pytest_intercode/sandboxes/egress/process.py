"""The client of the proxy: starts it when a first sandbox needs it, and sends it requests.

Modules that only this needs are imported then, as most runs have no such sandbox.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TypeAlias

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.inside import text_of
from pytest_intercode.sandboxes.messages import send
from pytest_intercode.system.forks import MakingProcess, close_in_children

__all__ = ["Egress", "Plan", "Proxy", "open_from_thread"]

Plan: TypeAlias = "dict[str, list[tuple[str, int]]]"
"""The sockets of a sandbox; see ``plan.sockets_of``."""

_MODULES = (
    *("core.hosts", "sandboxes.messages", "sandboxes.egress.plan", "sandboxes.egress.dns"),
    *("sandboxes.egress.traffic", "sandboxes.egress.uplink", "sandboxes.egress.proxy"),
)
_ANSWER_TIMEOUT = 5.0  # seconds for an answer
_START_TIMEOUT = 30.0  # seconds for the first answer, on a busy machine
_EXIT_TIMEOUT = 5.0  # seconds for the proxy to end when it is killed
_MAX_REPORT = 1 << 16  # bytes of an answer, more than the proxy remembers

LOST = "the proxy of the sandbox's network has ended, and with it every connection"


class Egress:
    """The limited network of one sandbox, until it is closed or this process ends.

    Args:
        control: our end of the proxy's socket for this sandbox.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._pending_questions = 0  # questions without an answer yet
        self._lost = False
        close_in_children(self)

    def answers(self) -> bool:
        """Whether the proxy serves the sandbox, which it does if it has answered once."""
        with self._lock:
            self._ask(_START_TIMEOUT)
            return not (self._lost or self._pending_questions)

    def refused(self) -> list[str]:
        """Return what was refused since the last call, a line each; never raises.

        Without its proxy, a sandbox reaches nothing. That is reported once, and is not a fault of
        the infrastructure: else an agent that finds a way to end the proxy would be excused.
        """
        with self._lock:
            if self._lost:
                return []
            lines = self._ask(_ANSWER_TIMEOUT)
            return [*lines, LOST] if self._lost else lines

    def _ask(self, timeout: float) -> list[str]:
        """Ask what was refused; an answer that is not in time comes with a later one."""
        lines: list[str] = []
        self._control.settimeout(timeout)
        try:
            self._control.send(b"?")
            self._pending_questions += 1
            while self._pending_questions:
                reply = self._control.recv(_MAX_REPORT)
                if not reply:
                    self._lost = True
                    break
                self._pending_questions -= 1
                lines += reply[1:].decode("ascii", "replace").splitlines()
        except TimeoutError:
            pass
        except OSError:
            self._lost = True
        return lines

    def close(self) -> None:
        """End it; may be called twice."""
        with self._lock:
            self._lost = True
            self._control.close()

    def close_copies(self) -> None:
        """Close the copy in a forked child."""
        self._control.close()


class Proxy:
    """The proxy of one process; it is started when a sandbox needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._made_in = MakingProcess()

    def serve(
        self,
        hosts: Iterable[str],
        own_name: str,
        open_in_sandbox: Callable[[Plan], list[int]],
    ) -> Egress:
        """Give a sandbox its network.

        Args:
            hosts: the hosts that the sandbox may reach.
            own_name: the sandbox's own name.
            open_in_sandbox: opens the sockets of a plan in its namespace, and returns their
                descriptors, which are closed here.

        Raises:
            SandboxError: the network cannot be entered, or the proxy cannot be started.
        """
        from pytest_intercode.core.hosts import AllowedHosts
        from pytest_intercode.sandboxes.egress.plan import sockets_of

        allowed_hosts = list(hosts)
        descriptors = open_in_sandbox(sockets_of(AllowedHosts(allowed_hosts)))
        control, proxy_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with proxy_control:
                passed_sockets = [proxy_control.fileno(), *descriptors]
                process = self._send_sockets(allowed_hosts, own_name, passed_sockets)
        except BaseException:
            control.close()
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        egress = Egress(control)
        if not egress.answers():
            egress.close()
            with self._lock:
                if self._process is process:  # the next sandbox gets another one
                    self._stop()
            raise SandboxError("the proxy of limited networks does not answer")
        return egress

    def _send_sockets(
        self, hosts: list[str], own_name: str, descriptors: list[int]
    ) -> subprocess.Popen[bytes] | None:
        """Send sockets to the proxy, or to a new one if it has ended; return its process."""
        with self._lock:
            for last in (False, True):
                try:
                    if self._process is None or self._process.poll() is not None:
                        self._start()
                    assert self._channel is not None
                    message = {"hosts": hosts, "own": own_name, "count": len(descriptors)}
                    send(self._channel, message, descriptors)
                    break
                except OSError as error:
                    self._stop()
                    if last:
                        problem = f"the proxy of limited networks cannot be used: {error}"
                        raise SandboxError(problem) from None
            return self._process

    def _start(self) -> None:
        self._stop()
        self._channel, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(_ANSWER_TIMEOUT)
        close_in_children(self)
        with inner:
            python = sys.executable or shutil.which("python3") or "python3"
            text = text_of("pytest_intercode", *_MODULES)
            self._process = subprocess.Popen(
                [python, "-I", "-S", "-c", text, str(inner.fileno())],
                pass_fds=(inner.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env={"PATH": os.defpath},
            )

    def close(self) -> None:
        """End the proxy, with every connection that it carries."""
        if self._made_in.is_this:
            with self._lock:
                self._stop()

    def _stop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        process, self._process = self._process, None
        if process is None:
            return
        # Immediately, and even if it is stopped: it has nothing to clean up.
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_EXIT_TIMEOUT)

    def close_copies(self) -> None:
        """Close the copy of the channel in a forked child, which would keep the proxy alive."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.returncode = 0  # its parent waits for it


def open_from_thread(process: int, plan: Plan) -> list[int]:
    """Open the sockets of a plan in the network of a process, as root.

    Args:
        process: a descriptor of the process.
        plan: see ``plan.sockets_of``.

    Raises:
        SandboxError: its network cannot be entered.
    """
    from pytest_intercode.sandboxes.egress.namespace import enter, open_sockets

    opened: list[int] = []
    problems: list[OSError] = []

    def work() -> None:
        try:
            enter(process)
            opened.extend(sock.detach() for sock in open_sockets(**plan))
        except OSError as error:
            problems.append(error)

    # Only this thread is in that namespace, and it ends there.
    thread = threading.Thread(target=work, name="intercode-egress")
    thread.start()
    thread.join()
    if problems:
        raise SandboxError(f"limited network: {problems[0].strerror or problems[0]}")
    return opened
