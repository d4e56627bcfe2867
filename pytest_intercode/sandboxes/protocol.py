"""The contract between environments and backends: what every sandbox can do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from pytest_intercode.core.machine import Limits, Services

__all__ = [
    "HOST",
    "OUTSIDE",
    "PYTHON_WORKER",
    "SCRATCH_SIZE",
    "SHELL_WORKER",
    "SHIMS_FOLDER",
    "STAMP",
    "Changes",
    "Entry",
    "Execution",
    "Launcher",
    "Sandbox",
    "SandboxSpec",
    "Stamps",
    "is_folder",
]

OUTSIDE = frozenset({"/proc", "/sys", "/dev"})
"""Folders that are not a part of the disk, with /dev/shm among them; nothing there is graded."""

SCRATCH_SIZE = 1024**3
"""Bytes that a scratch folder may hold, unless the sandbox has less memory than that."""

SHIMS_FOLDER = "/opt/intercode/shims"
"""The folder of programs that stand in for others in a sandbox, if it has any. They are in ``bin``,
which comes first on the PATH of actions, but not on that of our own commands. The variable
``INTERCODE_PATH`` passes it to the keeper."""

HOST = "host"
"""The image name of a sandbox that has no image, but sees this machine's own programs."""


SHELL_WORKER: Literal["bash"] = "bash"
PYTHON_WORKER: Literal["python"] = "python"


@dataclass(frozen=True)
class SandboxSpec:
    """Everything that must be known before a sandbox starts; equal specs are interchangeable.

    Attributes:
        image: the image's name.
        limits: what the sandbox may use.
        workdir: the directory in which the shell starts; made if it is missing.
        hostname: the machine's name inside, or None for the backend's own choice.
        variables: environment variables, as pairs.
        guarded: keep the shell from looking into the sandbox's first process, through which it
            could forge answers. The price: ``find /`` complains about ``/proc/1``.
        mounts: folders of the host that the sandbox shares, as pairs of a path on the host and a
            path inside; for our own servers, never for a sandbox that an agent acts in.
        readonly: folders of the host that the sandbox may read, as pairs like those of ``mounts``.
        scratch: folders in memory that every process of the sandbox may write to. They count as its
            memory, are not a part of its disk, and nothing in them is graded.
        worker: what runs the actions and keeps their state: a shell, or a Python interpreter.
        user: the user who runs the actions, by name or number; empty for root. A task's setup is
            run by root in any case.
        content: a tar archive that is unpacked at ``/`` as soon as the sandbox has started, and one
            of our commands that is run after that; even where they are needed only later.
        services: the machines next to the sandbox, which start and end with it; their images are
            ready.
        joins: the sandbox will :meth:`Sandbox.join` another one.
        host: the Docker host, of several, that the sandbox has to be on; empty for any.
    """

    image: str
    limits: Limits = field(default_factory=Limits)
    workdir: str = "/"
    hostname: str | None = None
    variables: tuple[tuple[str, str], ...] = ()
    guarded: bool = True
    mounts: tuple[tuple[str, str], ...] = ()
    readonly: tuple[tuple[str, str], ...] = ()
    scratch: tuple[str, ...] = ()
    worker: Literal["bash", "python"] = SHELL_WORKER
    user: str = ""
    content: tuple[bytes, str] | None = None
    services: Services = field(default=Services())
    joins: bool = False
    host: str = ""

    @property
    def is_connected(self) -> bool:
        """Whether the sandbox is in a network with other machines."""
        return bool(self.services) or self.joins

    @property
    def images(self) -> frozenset[str]:
        """The names of the sandbox's image and of its services' images."""
        machines = self.services.machines
        return frozenset([self.image, *(machine.image.image or "" for machine in machines)])

    def __hash__(self) -> int:  # the pool calls it very often; most specs differ in these fields
        return hash((self.image, self.workdir, self.worker, self.user))


@dataclass(frozen=True)
class Execution:
    """The result of one action.

    Attributes:
        output: stdout and stderr as one stream, in true order, cut to the output limit.
        size: bytes that the action wrote in all, until it ended or was stopped.
        digest: SHA-256 of all these bytes, in hexadecimal.
        status: the exit status, or None when the action had none (it timed out or was stopped).
        cwd: the shell's directory afterwards.
        ended: why the action ended: by itself, by the timeout, by too much output, or because the
            episode was called off.
        restarted: the shell was lost with the action and has been replaced.
        seconds: wall time.
        state_lost: the new shell could not take over the state of the previous one.
    """

    output: bytes
    size: int
    digest: str
    status: int | None
    cwd: str
    ended: Literal["itself", "timeout", "flood", "cancelled"]
    restarted: bool
    seconds: float
    state_lost: bool = False

    @property
    def truncated(self) -> bool:
        """Whether ``output`` is less than what the action wrote."""
        return self.size > len(self.output)


@dataclass(frozen=True)
class Entry:
    """One file-system entry as rewards compare it; times are left out on purpose.

    Attributes:
        type: ``f`` file, ``d`` directory, ``l`` link, ``p`` FIFO, ``s`` socket, ``b`` or ``c``
            device.
        mode: permission bits.
        uid: the owner.
        gid: the group.
        content: a digest of a file's bytes in hexadecimal (SHA-256, see ``reading.py``), a link's
            target, or empty.
    """

    type: str
    mode: int
    uid: int
    gid: int
    content: str = ""


def is_folder(entry: Entry | None) -> bool:
    """Whether there is an entry, and it is a folder."""
    return entry is not None and entry.type == "d"


@dataclass(frozen=True)
class Changes:
    """The differences since :meth:`Sandbox.mark`.

    Attributes:
        entries: changed paths with their current entry, None for a path that no longer exists.
        before: the entry at the mark, for those changed paths where it is known in full.
    """

    entries: Mapping[str, Entry | None]
    before: Mapping[str, Entry | None] = field(default_factory=dict)


STAMP = 7
"""How many numbers a stamp has."""

Stamps: TypeAlias = dict[str, tuple[int, ...]]
"""The metadata of each written entry, with its times, by its path. If an entry has changed so
recently that a further change might not show, the time of the reading is added."""


class Sandbox(Protocol):
    """An isolated machine with one shell that keeps its state between actions.

    Every method raises :class:`~pytest_intercode.errors.SandboxError` when the sandbox is gone.
    """

    @property
    def name(self) -> str:
        """A short name for messages."""

    @property
    def spec(self) -> SandboxSpec:
        """The spec that was asked for."""

    @property
    def host(self) -> str:
        """The Docker host that the sandbox is on; empty for this machine's own engine."""

    def run(self, action: str, timeout: float) -> Execution:
        """Run one action in the shell; after ``timeout`` seconds it and its children are killed."""

    def admin(self, command: str, timeout: float) -> tuple[int, bytes]:
        """Run one of our own commands outside the shell; return its exit status and its output."""

    def settle(self, timeout: float) -> bytes:
        """Wait until nothing runs but the shell; return what was printed since the last action."""

    def unpack(self, archive: bytes) -> None:
        """Unpack a tar archive at ``/``, with its owners, modes and times."""

    def mark(self) -> None:
        """Remember the state of the file system; :meth:`changes` is relative to it.

        This method and the next two raise :class:`~pytest_intercode.errors.UngradableState` where
        the files exceed the limits of ``reading.py``. A :meth:`close` in another thread ends them.
        """

    def changes(self) -> Changes:
        """Return what changed on disk since :meth:`mark`."""

    def stamps(self) -> dict[str, tuple[int, ...]] | None:
        """Return what identifies this state of the disk; None where finding it out takes long.

        It relies on times, so a file that is written to through memory may look unchanged.
        """

    def entries(self, paths: Iterable[str]) -> dict[str, Entry | None]:
        """Return the entries that now stand at ``paths``, None for those that do not exist."""

    def below(self, paths: Iterable[str]) -> list[str]:
        """Return those of ``paths`` that exist, and the paths of everything in these folders.

        Links are not followed.
        """

    def archive(
        self, paths: Iterable[str], *, content: int | None = None, seconds: float | None = None
    ) -> bytes:
        """Return a tar archive of the entries at ``paths``, in order, without what is in folders.

        It holds files, links and folders, with their owners, modes and times, and nothing else. The
        bytes of content and the seconds are limited; ``content`` and ``seconds`` may lower these.
        """

    def expose(self) -> None:
        """Note that the sandbox gets what an agent left in another one.

        From now on, the end of the sandbox, or a failure of one of our commands, counts against the
        agent, as if it had acted here, unless the engine knows of another cause.
        """

    def join(self, other: Sandbox) -> None:
        """Leave the sandbox's own services, which end, and reach those of another one by name.

        The two sandboxes still cannot reach each other's files or processes.
        """

    def command_service(
        self, service: str, command: str, user: str, timeout: float
    ) -> tuple[int, bytes]:
        """Run a command in a service of the sandbox; return its exit status and its output.

        Args:
            service: the name of the service.
            command: a line for its ``sh``.
            user: the user who runs it; empty for the service's own user.
            timeout: seconds that the command has; the status of one that needs longer is 124.
        """

    def archive_service(self, service: str, path: str) -> bytes:
        """Return a tar archive of a path of a service, and of everything below it.

        As with :meth:`archive`, there are limits. The archive is empty where nothing is at the
        path. The service may have ended already.
        """

    def halt(self) -> None:
        """End every process of the actions; no action is run afterwards."""

    def refused(self) -> list[str]:
        """Return what network access was refused since the last call, a line each; never raises."""

    def lead_to(self, inside: str, outside: Path) -> None:
        """Make a socket in the sandbox reachable at a path here, where no folder is shared with it.

        Args:
            inside: the socket's path in the sandbox, in a folder of the spec's ``mounts``.
            outside: the path at which it is reachable here, in our folder.
        """

    def forward_port(self, port: int, outside: Path) -> Callable[[], None] | None:
        """Forward a port of the sandbox's loopback to a Unix socket here, if no folder is shared.

        The sandbox's network does not change, and the port leads nowhere else. The image needs
        ``perl``.

        Args:
            port: the port, which nothing in the sandbox uses.
            outside: the path of the socket.

        Returns:
            A function that ends the forwarding, as the sandbox's end does; it may be called twice.
            None where folders are shared: a socket in one of the spec's ``readonly`` has a path
            inside.

        Raises:
            CommandFailed: the listener does not start in this sandbox; the message is its own.
        """

    def interrupt(self) -> None:
        """End a running action from another thread, as if its time had run out."""

    def close(self) -> None:
        """End the sandbox and everything in it; may be called twice, never raises."""


class Launcher(Protocol):
    """Starts sandboxes, from several threads at the same time."""

    @property
    def starters(self) -> int:
        """How many simultaneous starts are useful; more of them gain nothing."""

    def launch(self, spec: SandboxSpec) -> Sandbox:
        """Start a fresh sandbox.

        Raises:
            SandboxError: the sandbox does not start.
        """
