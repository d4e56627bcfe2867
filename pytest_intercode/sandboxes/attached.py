"""What the sandboxes of all backends share: a keeper behind streams, and a reader of the disk."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_intercode.errors import (
    CommandFailed,
    SandboxBroken,
    SandboxError,
    UngradableState,
    UnpackFailed,
)
from pytest_intercode.sandboxes.channel import Channel
from pytest_intercode.sandboxes.keeper import MAX_ADMIN_OUTPUT
from pytest_intercode.sandboxes.listing import ListingProbe
from pytest_intercode.sandboxes.overlay import OverlayProbe, Unreadable
from pytest_intercode.sandboxes.protocol import (
    OUTSIDE,
    PYTHON_WORKER,
    Changes,
    Entry,
    Execution,
    Sandbox,
    SandboxSpec,
    Stamps,
)
from pytest_intercode.sandboxes.python_channel import PythonChannel
from pytest_intercode.sandboxes.reading import SETUP_LIMITS, GradingLimits, Reading
from pytest_intercode.sandboxes.transport import ChannelClosed, Transport

if TYPE_CHECKING:
    from pytest_intercode.sandboxes.egress.process import Egress, Plan, Proxy

__all__ = [
    *("CAPABILITIES", "GUARD", "KEEPER_CAPABILITY", "SHM_SIZE"),
    *("AttachedSandbox", "find_killer"),
]

# What su, useradd, tar, chmod 4755, git and crontab need; none of it reaches the host.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
# Starts the keeper so that no other process, not even root's, can look into it: the kernel guards a
# process that began with two different groups. None of that stays, and no capability is needed.
GUARD = ("setpriv", "--egid", "1", "--keep-groups", "--inh-caps", "-all", "--ambient-caps", "-all")
# Where there is only one group: the keeper has this capability, and its shells start without it.
KEEPER_CAPABILITY = "SETPCAP"
SHM_SIZE = 16 * 1024**2

# In an image, this path may be a broken link, and an engine may have mounted the file.
_HOSTS_COMMAND = (
    "printf %s {0} >>/etc/hosts && {{ printf %s {1} >/etc/resolv.conf || "
    "{{ rm -f /etc/resolv.conf && printf %s {1} >/etc/resolv.conf; }}; }}"
)
_HOSTS_TIMEOUT = 30.0  # seconds

# What the kernel logs when it kills a process for lack of memory: of the machine, or of a cgroup.
_MEMORY_KILL = re.compile(
    rb"[0-7],\d+,(\d+),[^;]*;(Memory cgroup out|Out) of memory\b.*?: Kill(?:ed)? process (\d+) "
)
_INITIAL_PIDS = 0xEFFFFFFC  # the PID namespace whose process numbers the kernel logs
# Shortages of this process or its machine, which no sandbox causes.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

Method = TypeVar("Method", bound=Callable[..., Any])
Result = TypeVar("Result")


def find_killer(process: int, started_at: float, log: str = "/dev/kmsg") -> str:
    """Report who killed the first process of a sandbox, if it was killed from outside.

    Nothing inside can kill it: the kernel guards that process from signals, and the filter of
    system calls protects its limits. What remains is a lack of memory, which the kernel logs.

    Args:
        process: the number of the process.
        started_at: the time at which it was started, of the monotonic clock.
        log: the kernel's log. If it cannot be read, nothing is known.

    Returns:
        Words for a message; empty if the sandbox ran out of its own memory, or nothing is known.
    """
    try:
        if os.stat("/proc/self/ns/pid").st_ino != _INITIAL_PIDS:  # noqa: PTH116
            return ""
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        while True:
            try:
                entry = os.read(descriptor, 8192)
            except BrokenPipeError:  # the entry was overwritten in the meantime
                continue
            except BlockingIOError:
                break
            # Each read returns one entry. The kernel's log has its own clock, which is a little
            # off; an older entry is about another process with the same number.
            match = _MEMORY_KILL.match(entry)
            if match and int(match[3]) == process and int(match[1]) / 1e6 > started_at - 1:
                return "this machine lacked memory" if match[2] == b"Out" else ""
            if not entry:
                break
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return "somebody has killed it from outside"


def _attribute_faults(method: Method) -> Method:
    """Report why the sandbox failed, and whose fault it is."""

    @functools.wraps(method)
    def call(self: AttachedSandbox, *args: Any, **kwargs: Any) -> Any:
        if self.broken:
            raise SandboxBroken(self.broken)
        try:
            return method(self, *args, **kwargs)
        except CommandFailed as failed:
            failed.acted = self._acted
            raise
        except OSError as error:  # its files disappeared with it
            unreadable = SandboxError(f"sandbox {self.name} cannot be read: {error}")
            if error.errno in _SHORTAGES:
                raise unreadable from error
            raise self._classify(unreadable) from error
        except SandboxError as error:
            fault = self._classify(error)
            # After an action that fails, nothing is known of the shell; a failure of one of our
            # commands, or of a reading, does not mean that the next one fails.
            permanent = isinstance(error, ChannelClosed) or method.__name__ == "run"
            if permanent and isinstance(fault, SandboxBroken):
                self.broken = str(fault)  # later calls fail without waiting
                self._channel.close()
            raise fault from error

    return call  # type: ignore[return-value]


class AttachedSandbox:
    """A started sandbox and the channel to its keeper.

    A fault before the first action is the machine's. A later one is the fault of what acted in the
    sandbox, unless the engine reports otherwise: else an agent could break its sandbox to be
    excused.

    Attributes:
        name: a short name for messages.
        spec: the spec that was asked for.
        probe: reads what changed on disk.
        broken: how the actions broke the sandbox for good; empty if they did not.
        grading: the limits of what is read of it, each time that it is graded.
        carried: the limits of what is carried from it to another sandbox.
        outside: the paths that are not a part of its disk.
        volumes: folders of its disk that the engine keeps elsewhere, by their paths in the sandbox.
        host: the Docker host that it is on; empty for this machine's own engine.
    """

    host = ""

    grading = GradingLimits()
    carried = GradingLimits(content=512 * 1024**2)
    outside = OUTSIDE
    volumes: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self, name: str, streams: Transport, spec: SandboxSpec, *, lowered: bool = False
    ) -> None:
        self.name = name
        self.spec = spec
        channel = PythonChannel if spec.worker == PYTHON_WORKER else Channel
        self._channel = channel(
            streams,
            workdir=spec.workdir,
            output_limit=spec.limits.output,
            lowered=lowered,
            offline=not (spec.limits.network or spec.is_connected),
            user=spec.user,
        )
        self._egress: Egress | None = None
        self.broken = ""
        self._acted = False
        self._ended = False
        self._marked = False
        self.probe = self._new_probe()
        if isinstance(self.probe, ListingProbe):
            self._channel.load_lister()  # now, as nothing has acted yet

    @_attribute_faults
    def run(self, action: str, timeout: float) -> Execution:
        """Run one action in the shell."""
        self._acted = True
        return self._channel.run(action, timeout)

    def expose(self) -> None:
        """Note that the sandbox gets what an agent left elsewhere: later faults are the agent's."""
        self._acted = True

    def _classify(self, error: SandboxError) -> SandboxError | SandboxBroken:
        """Return the error as a fault of the machine, or of what acted in the sandbox."""
        message = str(error)
        if isinstance(error, ChannelClosed):
            message = f"sandbox {self.name} ended while in use: {error}"
        # Keep the class of the error: here, the sandbox cannot hold the task's files.
        if isinstance(error, UnpackFailed) and not self._acted:
            return error
        if not self._acted or self._ended:
            return SandboxError(message)
        cause = self.outside_cause()
        if cause:
            return SandboxError(f"{message} ({cause})")
        return SandboxBroken(message)

    def outside_cause(self) -> str:
        """Return the cause of a fault if it is outside of the sandbox, as the engine reports it.

        Empty if the engine knows of none; an engine that can be asked overrides this method.
        """
        return ""

    @_attribute_faults
    def admin(
        self, command: str, timeout: float, max_output: int = MAX_ADMIN_OUTPUT
    ) -> tuple[int, bytes]:
        """Run one of our own commands outside the shell."""
        return self._channel.admin(command, timeout, max_output)

    @_attribute_faults
    def list_files(self, request: bytes, timeout: float, max_output: int) -> tuple[int, bytes]:
        """Have the program in the sandbox that reads its files answer a request."""
        return self._channel.list_files(request, timeout, max_output)

    @_attribute_faults
    def settle(self, timeout: float) -> bytes:
        """Wait for what runs in the background."""
        return self._channel.settle(timeout)

    @_attribute_faults
    def unpack(self, archive: bytes) -> None:
        """Unpack a tar archive at the root."""
        self._channel.unpack(archive)

    @_attribute_faults
    def mark(self) -> None:
        """Remember the state of the file system."""
        self.probe.mark(self._new_reading(SETUP_LIMITS))
        self._marked = True

    @_attribute_faults
    def changes(self) -> Changes:
        """Return what changed on disk since the mark."""
        if not self._marked:
            raise SandboxError(f"sandbox {self.name} was never marked")
        return self._read(self.probe.changes, self.grading)

    @_attribute_faults
    def stamps(self) -> Stamps | None:
        """Return what identifies this state of the disk, if its layers can be read."""
        probe = self.probe
        if not isinstance(probe, OverlayProbe) or self.spec.readonly or self.spec.scratch:
            return None
        # None is good enough: the caller only asks whether two states are surely the same.
        with contextlib.suppress(UngradableState):
            return self._read(probe.stamps, self.grading)
        return None

    @_attribute_faults
    def entries(self, paths: Iterable[str]) -> dict[str, Entry | None]:
        """Return the entries at the given paths."""
        return self._read(functools.partial(self.probe.entries, paths), self.grading)

    @_attribute_faults
    def below(self, paths: Iterable[str]) -> list[str]:
        """Return those of the paths that exist, and the paths of everything in these folders."""
        return self._read(functools.partial(self.probe.below, paths), self.grading)

    @_attribute_faults
    def archive(
        self, paths: Iterable[str], *, content: int | None = None, seconds: float | None = None
    ) -> bytes:
        """Return a tar archive of the entries at the given paths."""
        limits = self.carried
        if content is not None:
            limits = replace(limits, content=min(content, limits.content))
        if seconds is not None:
            limits = replace(limits, seconds=min(seconds, limits.seconds))
        return self._read(functools.partial(self.probe.archive, paths), limits)

    @_attribute_faults
    def halt(self) -> None:
        """End every process but the keeper."""
        self._channel.halt()

    def interrupt(self) -> None:
        """End a running action from another thread."""
        self._channel.interrupt()

    def close(self) -> None:
        """End the sandbox and everything in it."""
        # Before the channel is closed: an error that this causes in another thread is not the
        # agent's.
        self._ended = True
        with contextlib.suppress(OSError):
            self._channel.close()
        if self._egress is not None:
            self._egress.close()

    def limit_network(self, proxy: Proxy, open_sockets: Callable[[Plan], list[int]]) -> None:
        """Give the sandbox a network with its few hosts, before anything runs in it; else close it.

        Args:
            proxy: serves the network.
            open_sockets: opens sockets in the sandbox's network; see :meth:`Proxy.serve`.

        Raises:
            SandboxError: the network cannot be entered, or the files with the addresses of hosts
                cannot be written.
        """
        from pytest_intercode.core.hosts import AllowedHosts
        from pytest_intercode.sandboxes.egress.plan import host_lines, resolver_lines

        hosts = self.spec.limits.hosts
        names = shlex.quote(host_lines(AllowedHosts(hosts)))
        resolver = shlex.quote(resolver_lines())
        try:
            self._egress = proxy.serve(hosts, self.spec.hostname or self.name, open_sockets)
            status, output = self._channel.admin(
                _HOSTS_COMMAND.format(names, resolver), _HOSTS_TIMEOUT
            )
            if status != 0:
                problem = f"its hosts cannot be written: {output!r:.200}"
                raise SandboxError(f"sandbox {self.name}: {problem}")
        except BaseException:
            self.close()
            raise

    def lead_to(self, inside: str, outside: Path) -> None:
        """Do nothing: a socket in a shared folder is reachable anyway.

        Args:
            inside: the socket's path in the sandbox, in a folder of the spec's ``mounts``.
            outside: the path at which it is reachable here, in our folder.
        """

    def forward_port(self, port: int, outside: Path) -> Callable[[], None] | None:
        """Return None: folders are shared with the sandbox, and so are the sockets in them."""

    def refused(self) -> list[str]:
        """Return what network access was refused since the last call."""
        return [] if self._egress is None else self._egress.refused()

    def join(self, other: Sandbox) -> None:
        """Refuse: only an engine with services has networks that can be joined."""
        raise SandboxError(f"sandbox {self.name} is in no network")

    def command_service(
        self, service: str, command: str, user: str, timeout: float
    ) -> tuple[int, bytes]:
        """Refuse, as :meth:`join` does."""
        raise SandboxError(f"sandbox {self.name} has no service {service!r}")

    def archive_service(self, service: str, path: str) -> bytes:
        """Refuse, as :meth:`join` does."""
        raise SandboxError(f"sandbox {self.name} has no service {service!r}")

    def layers(self) -> OverlayProbe:
        """Return the probe that reads the overlay's layers from outside.

        Raises:
            Unreadable: they cannot be read here; a program in the sandbox has to read its files.
        """
        raise Unreadable("its layers are the engine's")

    def _new_probe(self) -> ListingProbe | OverlayProbe:
        try:
            return self.layers()
        except Unreadable:
            outside = {*self.outside, *self.spec.scratch}
            return ListingProbe(self._channel.list_files, outside, self.volumes)

    def _read(self, read: Callable[[Reading], Result], limits: GradingLimits) -> Result:
        """Return what is read of the files, if the sandbox still lives after the reading.

        The layers of a sandbox that ends disappear file by file, and a file that is gone already
        would look as if the agent had removed it. A lister that reads ends with its sandbox.
        """
        result = read(self._new_reading(limits))
        if isinstance(self.probe, OverlayProbe):
            self._channel.check()
        return result

    def _new_reading(self, limits: GradingLimits) -> Reading:
        return Reading(limits, lambda: self._ended)
