"""Podman as a backend, through its command line: what another engine needs to run sandboxes.

A sandbox is one ``podman run -i``. Its input and outputs are pipes to the keeper, which is the
first process inside, so that it ends with its client; Podman removes the rest.
"""

from __future__ import annotations

import resource
import secrets
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

from pytest_intercode import (
    AttachedSandbox,
    BackendEvents,
    Chunk,
    EngineUnavailable,
    ImageError,
    ImageSource,
    SandboxError,
    SandboxSettings,
    SandboxSpec,
)
from pytest_intercode.sandboxes.attached import CAPABILITIES, GUARD, SHM_SIZE
from pytest_intercode.sandboxes.build import build_context
from pytest_intercode.sandboxes.pipes import PipeStreams
from pytest_intercode.sandboxes.protocol import SCRATCH_SIZE

_LABEL = "intercode-podman"
_MAX_LIMITS = {"nofile": 1 << 20, "nproc": 32768}
_END_TIMEOUT = 10  # seconds for sandboxes to end when the run is over


def podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Podman; return its status and output."""
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False)


class PodmanStreams(PipeStreams):
    """Pipes that Podman copies to and from the keeper's, at its own pace.

    Attributes:
        problem: Podman's own error among the keeper's answers.
    """

    problem = ""

    def receive(self, timeout: float) -> list[Chunk]:
        """Wait for bytes; keep the error that explains why a container does not start."""
        chunks = super().receive(timeout)
        for chunk in chunks:
            if chunk.data.startswith(b"Error: "):
                self.problem = chunk.data.decode("utf-8", "replace").strip()
        return chunks

    def read_output(self) -> None:
        """Return None: more output may still arrive."""


class PodmanSandbox(AttachedSandbox):
    """A container, and the command that is attached to it."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], *args: object) -> None:
        self._process = process
        super().__init__(name, *args)

    def outside_cause(self) -> str:
        """Return that the command was killed, which nothing inside can do."""
        return "its `podman run` was killed" if (self._process.poll() or 0) < 0 else ""


class PodmanImages:
    """Podman's images, identified by their ids."""

    def __init__(self, settings: SandboxSettings, events: BackendEvents) -> None:
        self._settings = settings
        self._report = events.report_build
        self._stopped = False

    def resolve(self, source: ImageSource, purpose: str = "") -> str:
        """Return the id of an image; pull or build it first if need be."""
        name = self._base(source)
        for layer in source.layers:
            with tempfile.TemporaryDirectory() as folder:
                shutil.copy(layer, Path(folder, "layer.tar"))
                Path(folder, "Dockerfile").write_text(f"FROM {name}\nADD layer.tar /\n")
                name = self._build(folder, f"{layer}")
        return name

    def _base(self, source: ImageSource) -> str:
        if source.image:
            name = self._settings.base_images.get(source.image, source.image)
            if podman("image", "exists", name).returncode == 0:
                return podman("image", "inspect", "-f", "{{.Id}}", name).stdout.strip()
            self._report(f"pulling {name}")
            pull = podman("pull", "-q", name)
            if pull.returncode == 0:
                return pull.stdout.strip()
            if source.dockerfile is None:
                raise ImageError(f"{name} cannot be pulled: {pull.stderr.strip()}", name)
        assert source.dockerfile is not None, "a source has a name or a Dockerfile"
        with tempfile.TemporaryDirectory() as folder:
            context = build_context(source.dockerfile, source.context, source.text or None)
            with tarfile.open(fileobj=BytesIO(context)) as archive:
                archive.extractall(folder)  # our own archive
            name = source.dockerfile.name
            return self._build(folder, name, f"--file={Path(folder, name)}")

    def _build(self, folder: str, label: str, *options: str) -> str:
        if self._stopped:
            raise ImageError("the run is over, and no image is built any more", label)
        self._report(f"building {label}")
        arguments = [f"--build-arg=BASE={base}" for base in self._settings.base_images.values()]
        build = podman("build", "-q", *_limits_of_process(), *options, *arguments[:1], folder)
        if build.returncode:
            raise ImageError(f"{label} does not build: {build.stderr.strip()}", label)
        return build.stdout.split()[-1]

    def pinned(self, name: str) -> str:
        """Return nothing: an image here is identified only by its id."""
        return ""

    def identity(self, name: str) -> str:
        """Return the id, which is that of the content."""
        return name

    def stop_builds(self) -> None:
        """Start no further build; a running one continues in its thread."""
        self._stopped = True


class PodmanBackend:
    """Makes sandboxes with ``podman run``; see :class:`pytest_intercode.Backend`."""

    name = "podman"
    takes = frozenset({"runtime"})
    builds_images = True
    shares_network = False
    starters = 4
    images: PodmanImages

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._run = secrets.token_hex(6)
        self._processes: set[subprocess.Popen[bytes]] = set()

    def __str__(self) -> str:
        runtime = self._settings.runtime
        return f"{self.name}, runtime {runtime}" if runtime else self.name

    def requested(self) -> str | None:
        """Return None: only its name selects it."""
        return None

    def problem(self) -> str:
        """Return that Podman is not installed; empty if it is."""
        return "" if shutil.which("podman") else "podman is not installed: apt-get install podman"

    def check(self, options: Mapping[str, str]) -> None:
        """Leave the check of the runtime to the first sandbox."""

    def start(self, events: BackendEvents) -> None:
        """Check that Podman is installed; it does not need a service."""
        if self.problem():
            raise EngineUnavailable(self.problem())
        self.images = PodmanImages(self._settings, events)

    def launch(self, spec: SandboxSpec) -> PodmanSandbox:
        """Start a container and the command that is attached to it."""
        if spec.limits.hosts:
            raise SandboxError("podman: there is no limited network with this backend")
        if podman("image", "exists", spec.image).returncode:
            raise SandboxError(f"{spec.image} does not start as a sandbox: there is no such image")
        self._processes = {process for process in self._processes if process.poll() is None}
        name = f"podman-{secrets.token_hex(4)}"
        streams = PodmanStreams.create()
        try:
            stdin, stdout, stderr = streams.inside
            process = subprocess.Popen(
                ["podman", *self._arguments(spec, name)],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,  # an interrupt at the terminal must not reach it
            )
            self._processes.add(process)
            streams.close_inside()
            return PodmanSandbox(name, process, streams, spec)
        except SandboxError as error:
            streams.close()
            raise SandboxError(
                f"{spec.image} does not start as a sandbox: {streams.problem or error}"
            ) from None
        except BaseException:
            streams.close()
            raise

    def _arguments(self, spec: SandboxSpec, name: str) -> Iterator[str]:
        limits = spec.limits
        if self._settings.runtime:
            yield f"--runtime={self._settings.runtime}"
        yield from ("run", "--interactive", "--rm", f"--name={name}", "--pull=never")
        yield from (f"--label={_LABEL}={self._run}", "--log-driver=none", "--no-healthcheck")
        yield from ("--user=0:0", "--workdir=/", "--init=false")
        yield f"--hostname={spec.hostname or name}"
        yield from ("--cap-drop=ALL", *(f"--cap-add={capability}" for capability in CAPABILITIES))
        yield from ("--security-opt=no-new-privileges", "--security-opt=mask=/sys/fs/cgroup")
        yield from (f"--memory={limits.memory}", f"--memory-swap={limits.memory}")
        yield from (f"--pids-limit={limits.pids}", f"--cpus={limits.cpus}")
        yield f"--ulimit=fsize={limits.file_size}:{limits.file_size}"
        yield from ("--ulimit=core=0:0", *_limits_of_process())
        yield f"--shm-size={min(SHM_SIZE, limits.memory // 4)}"
        if not limits.network:
            yield "--network=none"
        for key, value in spec.variables:
            yield f"--env={key}={value}"
        for outside, inside in spec.mounts:
            yield f"--volume={outside}:{inside}"
        for outside, inside in spec.readonly:
            yield f"--volume={outside}:{inside}:ro"
        for path in spec.scratch:
            yield f"--tmpfs={path}:exec,mode=1777,size={SCRATCH_SIZE}"
        command = [*(GUARD if spec.guarded else ()), "bash"]
        yield from (f"--entrypoint={command[0]}", spec.image, *command[1:])

    def close(self) -> None:
        """End every sandbox of this run."""
        if self._processes:
            podman("rm", "--force", "--all", f"--filter=label={_LABEL}={self._run}")
        for process in self._processes:
            process.wait(_END_TIMEOUT)
        self._processes.clear()


def _limits_of_process() -> Iterator[str]:
    """Yield limits that Podman would otherwise raise, which it may not do if it is nested."""
    for name, kind in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        maximum = min(resource.getrlimit(kind)[1], _MAX_LIMITS[name])
        if maximum > 0:
            yield f"--ulimit={name}={maximum}:{maximum}"
