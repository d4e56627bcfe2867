"""What a sandbox is, whatever runs it: the contract between environments and backends."""

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
"""Bytes that a scratch folder may hold, where the sandbox's memory is not less."""

SHIMS_FOLDER = "/opt/intercode/shims"
"""Where a sandbox has programs that stand for others, if it has any. They are in ``bin``, which is
first on the PATH of what acts there, as the variable ``INTERCODE_PATH`` says to the keeper, and not
on that of our own commands."""

HOST = "host"
"""The image of a sandbox that sees this machine's own programs; there is none, then."""


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
        guarded: keep the shell from looking into the sandbox's first process, by which it could
            forge answers. The price: ``find /`` complains about ``/proc/1``.
        mounts: folders of the host that the sandbox shares, as pairs of a path on the host and a
            path inside; for our own servers, never for what an agent acts in.
        readonly: folders of the host that the sandbox may read, as such pairs.
        scratch: folders in memory that anybody in the sandbox may write. They count as its memory,
            are not a part of its disk, and nothing in them is graded.
        worker: what runs the actions, and remembers: a shell, or a Python interpreter.
        user: who runs the actions, by name or number; empty for root. What a task prepares is
            root's all the same.
        content: a tar archive that is unpacked at ``/`` as soon as the sandbox has started, and one
            of our commands that is run then; also where they are needed only later.
        services: the machines next to it, which start and end with it; their images are ready.
        joins: it will :meth:`Sandbox.join` another one.
        host: the one of several Docker hosts that it has to be on; empty for any.
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
        """Whether it is in a network with other machines."""
        return bool(self.services) or self.joins

    @property
    def images(self) -> frozenset[str]:
        """The names of its image and of its services' images."""
        machines = self.services.machines
        return frozenset([self.image, *(machine.image.image or "" for machine in machines)])

    def __hash__(self) -> int:  # the pool's books ask for it all the time; most specs differ here
        return hash((self.image, self.workdir, self.worker, self.user))


@dataclass(frozen=True)
class Execution:
    """What became of one action.

    Attributes:
        output: stdout and stderr as one stream, in true order, cut to the output limit.
        size: bytes the action really wrote (as far as it was let).
        digest: SHA-256 of all of them, in hexadecimal.
        status: the exit status, or None when the action had none (it timed out or was stopped).
        cwd: the shell's directory afterwards.
        ended: how the action ended: by itself, by the clock, by its flood of output, or by the
            episode being called off.
        restarted: the shell was lost with the action and has been replaced.
        seconds: wall time.
        state_lost: the new shell could not take over the state of the one before.
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
    """Whether something is there, and is a folder."""
    return entry is not None and entry.type == "d"


@dataclass(frozen=True)
class Changes:
    """What is different since :meth:`Sandbox.mark`.

    Attributes:
        entries: changed paths with their entry now, None for a path that is gone.
        before: the entry at the mark, for those changed paths where it is known in full.
    """

    entries: Mapping[str, Entry | None]
    before: Mapping[str, Entry | None] = field(default_factory=dict)


STAMP = 7
"""The numbers of a stamp."""

Stamps: TypeAlias = dict[str, tuple[int, ...]]
"""By its path, what each entry that was written has besides its content, with the times. Where it
has changed so lately that a further change need not show, the time of reading it is added."""


class Sandbox(Protocol):
    """An isolated machine with one shell that keeps its state between actions.

    Every method raises :class:`~pytest_intercode.errors.SandboxError` when the sandbox is gone.
    """

    @property
    def name(self) -> str:
        """A short name for messages."""

    @property
    def spec(self) -> SandboxSpec:
        """What was asked for."""

    @property
    def host(self) -> str:
        """The Docker host that it is on; empty for this machine's own engine."""

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

        This and the next two raise :class:`~pytest_intercode.errors.UngradableState` where there is
        more than is read (``reading.py``). :meth:`close` ends them from another thread.
        """

    def changes(self) -> Changes:
        """Return what changed on disk since :meth:`mark`."""

    def stamps(self) -> dict[str, tuple[int, ...]] | None:
        """Return what distinguishes this state of its disk; None where that takes long.

        Times show it: a file that is written to through memory may look as before.
        """

    def entries(self, paths: Iterable[str]) -> dict[str, Entry | None]:
        """Return the entries that now stand at ``paths``, None for those that do not exist."""

    def below(self, paths: Iterable[str]) -> list[str]:
        """Return the paths of what now stands at ``paths``, and of all in these folders.

        No link is followed.
        """

    def archive(
        self, paths: Iterable[str], *, content: int | None = None, seconds: float | None = None
    ) -> bytes:
        """Return a tar archive of what stands at ``paths``, in order; not of what is in folders.

        Files, links and folders are in it, with their owners, modes and times; nothing else is.
        There is a limit to the bytes of their contents and to the seconds, or a lower one.
        """

    def expose(self) -> None:
        """Note that it gets what an agent left elsewhere.

        From now on its end, or one of our commands that fails, counts against what left that, as
        if it had acted here, unless the engine knows of another cause.
        """

    def join(self, other: Sandbox) -> None:
        """Leave its own services, which end, and reach those of another sandbox by their names.

        Neither sandbox's files or processes are any nearer to the other one's.
        """

    def command_service(
        self, service: str, command: str, user: str, timeout: float
    ) -> tuple[int, bytes]:
        """Run a command in one of its services; return its exit status and its output.

        Args:
            service: the name of the service.
            command: a line for its ``sh``.
            user: who runs it; empty for the service's own user.
            timeout: seconds that it has; 124 is the status of one that needs longer.
        """

    def archive_service(self, service: str, path: str) -> bytes:
        """Return a tar archive of what stands at a path of a service, and of all below it.

        As with :meth:`archive`, there are limits. It is empty where nothing is there; the service
        may have ended.
        """

    def halt(self) -> None:
        """End every process of what acted in it; no action is run afterwards."""

    def refused(self) -> list[str]:
        """Return what of the network was refused since the last call, a line each; never raises."""

    def lead_to(self, inside: str, outside: Path) -> None:
        """Have a socket in it be reached at a path here, where no folder is shared with it.

        Args:
            inside: where it is, in a folder of the spec's ``mounts``.
            outside: where it is to be, in our folder.
        """

    def forward_port(self, port: int, outside: Path) -> Callable[[], None] | None:
        """Have a port of its loopback lead to a Unix socket here, where no folder is shared.

        Its network stays as it is, and the port leads nowhere else. The image needs ``perl``.

        Args:
            port: the port, which nothing in the sandbox has.
            outside: the path of the socket.

        Returns:
            A function that ends it, as the sandbox's end does; it may be called twice. None where
            folders are shared: a socket in one of the spec's ``readonly`` is reached by its path.

        Raises:
            CommandFailed: what listens does not start in this sandbox; the message is its own.
        """

    def interrupt(self) -> None:
        """End a running action from another thread, as if its time had run out."""

    def close(self) -> None:
        """End the sandbox and everything in it; may be called twice, never raises."""


class Launcher(Protocol):
    """What starts sandboxes, from several threads at the same time."""

    @property
    def starters(self) -> int:
        """How many starts at the same time are good for it; more gain nothing."""

    def launch(self, spec: SandboxSpec) -> Sandbox:
        """Start a fresh sandbox.

        Raises:
            SandboxError: it does not start.
        """
