"""The launcher of bubblewrap's sandboxes: without a daemon, and without root where possible."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import secrets
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any, BinaryIO

if sys.platform != "linux":
    raise ImportError("bubblewrap runs on Linux only")

from pytest_intercode.core.task import Limits
from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes import seccomp
from pytest_intercode.sandboxes.attached import (
    CAPABILITIES,
    KEEPER_CAPABILITY,
    SHM_SIZE,
)
from pytest_intercode.sandboxes.bubblewrap.cgroups import ControlGroup, ControlGroups, remove_all
from pytest_intercode.sandboxes.bubblewrap.hosttree import shared, skeleton
from pytest_intercode.sandboxes.bubblewrap.process import (
    NOBODY,
    StarterLost,
    StarterProcess,
    find_forbidding_setting,
)
from pytest_intercode.sandboxes.bubblewrap.rights import NO_NAMESPACE
from pytest_intercode.sandboxes.bubblewrap.sandbox import BubblewrapSandbox, let_go
from pytest_intercode.sandboxes.egress.process import Plan, Proxy
from pytest_intercode.sandboxes.pipes import PipeStreams
from pytest_intercode.sandboxes.protocol import HOST, SCRATCH_SIZE, SHELL_WORKER, SandboxSpec
from pytest_intercode.system.forks import MakingProcess

__all__ = ["NAME_VARIABLE", "Bubblewrap"]

NAME_VARIABLE = "INTERCODE_SANDBOX"
"""The variable with a sandbox's name, in the initial environment of its first process."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# linux/capability.h
_CAPABILITY_NUMBERS = {
    **{"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6},
    **{"SETUID": 7, "SETPCAP": 8},
}
_PREFORKED = 2  # processes that wait for a command: an episode takes two together
_MAX_TRIES = _PREFORKED + 2  # per sandbox: each of these may be gone, and then the starter
_STARTER_EXIT_TIMEOUT = 0.1  # seconds within which a killed starter is known to have ended
_MIN_DISK = 64 * 1024**2
_UNPACK_SPEED = 1e6  # minimum bytes per second, on a busy machine
_MAX_REQUEST = 160_000  # bytes, less than the system's limit for one message
_NOT_SHARED = ("/usr/src", "/usr/local/src")


def disk_size(limits: Limits) -> int:
    """Return the bytes that all files of a sandbox together may have."""
    return max(_MIN_DISK, limits.file_size)


def _make_request(
    spec: SandboxSpec,
    name: str,
    *,
    lowers: list[str],
    shared: bool,
    lowered: bool,
    grouped: bool,
    all_ids: bool,
) -> dict[str, Any]:
    """Return the starter's request for a sandbox; see ``Starter._launch``.

    Raises:
        SandboxError: the request is too long to be sent.
    """
    limits = spec.limits
    hostname = spec.hostname or name
    variables = {"PATH": _PATH, "HOSTNAME": hostname, "HOME": "/root"}
    if limits.hosts:
        from pytest_intercode.sandboxes.egress.plan import variables as network_variables

        variables |= network_variables()
    capabilities = [*CAPABILITIES, *([KEEPER_CAPABILITY] if lowered else [])]
    rlimits = [(resource.RLIMIT_FSIZE, limits.file_size), (resource.RLIMIT_CORE, 0)]
    if not grouped:
        rlimits.append((resource.RLIMIT_DATA, limits.memory))
    request = {
        "do": "launch",
        "prefork": 1,
        "argv": ["bash"],
        # Only the keeper has the last variable: it is for people who list processes outside, and
        # nothing inside may distinguish two sandboxes.
        "variables": {**variables, **dict(spec.variables), NAME_VARIABLE: name},
        "hostname": hostname,
        "workdir": spec.workdir,
        "lowers": lowers,
        "shared": shared,
        "size": disk_size(limits),
        "shm": min(SHM_SIZE, limits.memory // 4),
        "mounts": spec.mounts,
        "readonly": spec.readonly,
        "scratch": [(path, SCRATCH_SIZE) for path in spec.scratch],
        "network": limits.network,
        "limits": rlimits,
        "capabilities": [_CAPABILITY_NUMBERS[name] for name in capabilities],
        "guarded": spec.guarded and all_ids,
        "state": spec.worker == SHELL_WORKER,
    }
    size = len(json.dumps(request))
    if size > _MAX_REQUEST:
        raise SandboxError(
            f"its variables and paths have {size} bytes, but at most {_MAX_REQUEST} are allowed: "
            "put what is long into a file"
        )
    return request


def _open_sockets(starter: StarterProcess, sandbox: BubblewrapSandbox, plan: Plan) -> list[int]:
    """Open sockets in the network of a sandbox, which the starter can enter."""
    try:
        return starter.ask({"do": "sockets", **plan}, [sandbox.process])[1]
    except StarterLost:
        raise
    except SandboxError as error:
        raise SandboxError(f"limited network: {error}") from None


class Bubblewrap:
    """Starts sandboxes; there is one for each pytest process.

    Args:
        hidden: folders of the host that no sandbox may see, wherever they are.
        root: make sandboxes with root's rights; by default if we are root and may make control
            groups, as nothing else limits how many processes root starts.

    Attributes:
        grouped: control groups limit what a sandbox uses as a whole.

    Raises:
        EngineUnavailable: sandboxes cannot be made here; the message says why.
    """

    starters = 4
    grouped: bool  # for type checks for another system, which skip the rest

    def __init__(self, hidden: Iterable[str] = (), root: bool | None = None) -> None:
        self._shared = shared([*_NOT_SHARED, *hidden])
        self._pid = os.getpid()
        self._process = MakingProcess()
        self._groups = ControlGroups()
        if root is None:
            root = os.geteuid() == 0 and self._groups.usable
        self.grouped = self._groups.usable and (root or os.geteuid() != 0)
        self._root = root
        self._next_groups: deque[ControlGroup | None] = deque()
        self._layers: set[str] = set()  # those that the starter has
        self._layer_bases: dict[str, str] = {}  # images that are a layer over another one
        self._archives: dict[str, int] = {}  # descriptors of the archives that layers come from
        self._lock = threading.Lock()
        self._launching = threading.Lock()
        self._sandboxes: set[BubblewrapSandbox] = set()
        # Groups of sandboxes that have ended, or are about to.
        self._leaving_groups: list[ControlGroup] = []
        self._egress = Proxy()
        self._starter = self._start_starter()

    def _start_starter(self) -> StarterProcess:
        """Begin a starter, with the control groups of its first sandboxes."""
        self._next_groups = deque(self._new_group() for _ in range(_PREFORKED))
        procs = [
            descriptor for group in self._next_groups if group for descriptor in group.open_procs()
        ]
        try:
            patterns = self._groups.patterns(self._pid)
            return StarterProcess(
                seccomp.program(), patterns, procs, _PREFORKED, self._root, self._shared
            )
        except BaseException:
            for group in self._next_groups:
                if group:
                    group.remove()
            raise
        finally:
            for descriptor in procs:
                os.close(descriptor)

    def _restart_starter(self, lost: StarterProcess) -> None:
        """Begin another starter in place of one that has ended, or does not answer any more.

        The sandboxes of the lost starter end with it.
        """
        with self._launching, self._lock:  # in the same order as in a launch
            if self._starter is not lost:
                return  # another thread did it
            lost.close()
            self._leaving_groups += [group for group in self._next_groups if group is not None]
            self._layers.clear()
            self._starter = self._start_starter()
            for name, descriptor in self._archives.items():
                self._give("archive", name, descriptor)

    @property
    def owner(self) -> int | None:
        """The user that owns everything in a sandbox; None if all users are known there."""
        return None if self._starter.readable else os.geteuid() or NOBODY

    @property
    def all_ids(self) -> bool:
        """Whether sandboxes know all users and groups, and not only root."""
        return self._starter.all_ids

    def launch(self, spec: SandboxSpec) -> BubblewrapSandbox:
        """Start a sandbox; if a waiting process or the starter is gone, try with another one.

        Raises:
            SandboxError: it does not start, or its keeper does not answer.
        """
        with self._lock:
            self._leaving_groups = remove_all(self._leaving_groups, 0)
        for remaining_tries in reversed(range(_MAX_TRIES)):
            starter = self._starter
            try:
                return self._launch(spec)
            except StarterLost as error:
                if not remaining_tries:
                    raise SandboxError(
                        f"{spec.image} does not start as a sandbox: {error}"
                    ) from None
                if not starter.answers():
                    self._restart_starter(starter)
        raise AssertionError("a range was empty")

    def _launch(self, spec: SandboxSpec) -> BubblewrapSandbox:
        name = f"bwrap-{secrets.token_hex(4)}"
        streams = PipeStreams.create()
        group: ControlGroup | None = None
        descriptors: list[int] = []
        starter: StarterProcess | None = None
        try:
            try:
                pid, descriptors, group, starter = self._start(spec, name, streams)
            finally:
                streams.close_inside()
            if len(descriptors) < 5 + len(self._base(spec.image)[1]):  # the system dropped some
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            if group is None:
                # Inside, only the sandbox's own processes count, and not all those of its user.
                streams.send(b"ulimit -u %d\n" % spec.limits.pids)
            elif starter.readable:
                streams.past_keeper = pid, group.open_count()
            # A process that had only begun when its starter was killed may wait for it endlessly.
            streams.is_hopeless = starter.ended
            sandbox = BubblewrapSandbox(
                name,
                pid,
                descriptors,
                streams,
                spec,
                readable=starter.readable,
                lowered=self._lowers_shells(spec),
                group=group,
                ended=self._forget,
                starter_ended=starter.ended,
            )
            streams.is_hopeless = None
        except BaseException as error:
            streams.close()
            let_go(descriptors)
            self._remove_later(group)
            if not isinstance(error, (SandboxError, OSError)) or isinstance(error, StarterLost):
                raise
            if starter is not None and starter.ended(_STARTER_EXIT_TIMEOUT):
                raise StarterLost("bubblewrap's starter was ended") from None
            setting = find_forbidding_setting() if NO_NAMESPACE in str(error) else ""
            hint = f" ({setting})" if setting else ""
            raise SandboxError(f"{spec.image} does not start as a sandbox: {error}{hint}") from None
        with self._lock:
            self._sandboxes.add(sandbox)
        if spec.limits.hosts:
            sandbox.limit_network(self._egress, partial(_open_sockets, starter, sandbox))
        return sandbox

    def _start(
        self, spec: SandboxSpec, name: str, streams: PipeStreams
    ) -> tuple[int, list[int], ControlGroup | None, StarterProcess]:
        with self._launching:
            starter = self._starter
            request = _make_request(
                spec,
                name,
                lowers=self._add_layers(spec),
                shared=not self._base(spec.image)[0].startswith("/"),
                lowered=self._lowers_shells(spec),
                grouped=self.grouped,
                all_ids=self.all_ids,
            )
            # The group of the process that has waited longest, which the starter will take.
            group = self._next_groups[0]
            try:
                if group is not None:
                    group.limit(spec.limits, spec.limits.memory + disk_size(spec.limits))
            except OSError as error:
                raise SandboxError(f"control groups: {error}") from None
            next_group = self._new_group()
            procs = next_group.open_procs() if next_group else []
            # From here on, each request takes a waiting process, and another one takes its place.
            self._next_groups.append(next_group)
            self._next_groups.popleft()
            try:
                answer, descriptors = starter.ask(request, [*streams.inside, *procs])
            except BaseException:
                self._remove_later(group)
                raise
            finally:
                for descriptor in procs:
                    os.close(descriptor)
        return int(answer["pid"]), descriptors, group, starter

    def sweep(self) -> int:
        """Remove the control groups of runs that died; nothing else can be left of them."""
        return self._groups.sweep()

    def close(self) -> None:
        """End every sandbox and the starter."""
        if not self._process.is_this:
            return
        for sandbox in self.sandboxes():  # before the starter, whose end is not a fault then
            sandbox.kill()
        self._starter.close()
        self._egress.close()
        for sandbox in self.sandboxes():
            sandbox.close()
        for group in self._next_groups:
            self._remove_later(group)
        with self._lock:
            self._leaving_groups = remove_all(self._leaving_groups, 2.0)
            while self._archives:
                os.close(self._archives.popitem()[1])

    def sandboxes(self) -> list[BubblewrapSandbox]:
        """Return the sandboxes that were not closed yet."""
        with self._lock:
            return list(self._sandboxes)

    # -- what a sandbox is made of

    def _lowers_shells(self, spec: SandboxSpec) -> bool:
        """Whether shells get fewer rights than the keeper, which the kernel does not guard."""
        return spec.guarded and not self.all_ids

    def _add_layers(self, spec: SandboxSpec) -> list[str]:
        """Give the starter the layers of a sandbox; return their names."""
        with self._lock:
            image, layers = self._base(spec.image)
            if image.startswith("/"):
                if image not in self._layers:
                    message = {"do": "folder", "name": image, "path": image}
                    self._starter.ask(message)
                    self._layers.add(image)
                return [*layers, image]
            name = f"{HOST} with network" if spec.limits.network else HOST
            if name not in self._layers:
                with tempfile.TemporaryFile() as file:
                    file.write(skeleton(spec.limits.network))
                    file.flush()
                    self._give("skeleton", name, file.fileno())
            return [*layers, name]

    def _base(self, image: str) -> tuple[str, list[str]]:
        """Return the base below an image's layers, and the names of the layers, topmost first."""
        layers = []
        while image in self._layer_bases:
            layers.append(image)
            image = self._layer_bases[image]
        return image, layers

    def add_layer(self, name: str, archive: BinaryIO, base: str) -> None:
        """Keep in memory what an image adds to another one, from a tar archive.

        Args:
            name: the name of the image from then on.
            archive: the archive.
            base: the image on top of which the archive is put.
        """
        archive.flush()
        with self._lock:
            if name in self._layer_bases:
                return
            starter = self._starter
            is_lost = True
            with contextlib.suppress(StarterLost):
                self._give("archive", name, archive.fileno())
                is_lost = False
            # From here on, every new starter gets the layer.
            self._layer_bases[name] = base
            self._archives[name] = os.dup(archive.fileno())
        if is_lost:
            self._restart_starter(starter)

    def _give(self, kind: str, name: str, descriptor: int) -> None:
        """Give the starter a layer, as a file from which it is made."""
        os.lseek(descriptor, 0, os.SEEK_SET)
        seconds = os.fstat(descriptor).st_size / _UNPACK_SPEED
        self._starter.ask({"do": kind, "name": name}, [descriptor] * 3, seconds)
        self._layers.add(name)

    def _new_group(self) -> ControlGroup | None:
        """Make the control group of the next sandbox."""
        if not self.grouped:
            return None
        try:
            return self._groups.make(self._pid)
        except OSError as error:
            raise SandboxError(f"no control group can be made: {error}") from None

    # -- after a sandbox

    def _forget(self, sandbox: BubblewrapSandbox) -> None:
        with self._lock:
            self._sandboxes.discard(sandbox)
        self._remove_later(sandbox.group)

    def _remove_later(self, group: ControlGroup | None) -> None:
        """Have a group removed after its processes have ended."""
        if group is not None:
            with self._lock:
                self._leaving_groups.append(group)
