"""The replacements for images: the host's system, or an unpacked root file system.

One of our Dockerfiles may add to the host's system, such as the databases of a suite. Then its
steps are run in a sandbox, and the result is kept as an archive in the user's cache, and in memory
while a run uses it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from platform import machine

from pytest_intercode.core.dockerfile import read_instructions
from pytest_intercode.core.platforms import platform_of_machine
from pytest_intercode.core.task import ImageSource, Limits
from pytest_intercode.errors import ImageError, SandboxError
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.bubblewrap.sandbox import BubblewrapSandbox
from pytest_intercode.sandboxes.build import (
    build_context,
    describe_build,
    one_builder,
    read_dockerfile,
)
from pytest_intercode.sandboxes.images import ImageFact
from pytest_intercode.sandboxes.protocol import HOST, SandboxSpec
from pytest_intercode.system.files import cache_folder

__all__ = ["Systems"]

_LIMITS = Limits(memory=1024**3, cpus=2.0, pids=400, file_size=2 * 1024**3)
_STEP_TIMEOUT = 600.0  # seconds for one step of a Dockerfile
_SERVERS = ("mariadbd", "mysqld")
_OUTPUT_FOLDER = "/run/out"
# Mount points, and what is new in every sandbox.
_ARCHIVE_COMMAND = "tar --one-file-system -C / -cf {out}/layer.tar {excluded} ."
_EXCLUDED = ("dev", "proc", "run", "sys", "tmp", "usr")
_INSTALL = re.compile(r"apt-get install((?:\\\n|[^&|;\n])*)")
# The steps of a Dockerfile that makes a Debian with some packages, and nothing else.
_PLAIN = re.compile(
    r"ARG BASE=debian(?::\S+)?|FROM (?:debian(?::\S+)?|\$BASE|\$\{BASE\})"
    r"|RUN (?:(?:[A-Z_]+=\S+ )?(?:apt-get (?:update|install|clean)|rm) [^&|;$`]*(?:&& *|$))+",
)
_IDENTITY_PATHS = ("usr", "usr/bin", "usr/sbin", "usr/local/bin", "etc", "var/lib/dpkg/status")
_STATUS = Path("/var/lib/dpkg/status")
_INSTALLED = re.compile(
    r"^Package: (\S+)\n(?:Essential: yes\n)?Status: install ok installed$", re.MULTILINE
)


class Systems:
    """Finds the system that replaces an image of a task.

    Args:
        bundled: the folder of our own Dockerfiles, for which the host's system will do. For other
            Dockerfiles it will do if they only install packages, and the host has them all.
        rootfs: an unpacked root file system for all images; or a folder with one for each, named
            after the Dockerfile: ``bash`` for ``bash.Dockerfile``.
        progress: called with one line for what the user should know.
        engine: runs those of our Dockerfiles that add to the host's system.
        verbosity: -1 to report no builds.
    """

    def __init__(
        self,
        bundled: Path,
        rootfs: Path | None = None,
        progress: Callable[[str], None] | None = None,
        engine: Bubblewrap | None = None,
        verbosity: int = 0,
    ) -> None:
        self._engine = engine
        self._verbosity = verbosity
        self._bundled = bundled.resolve()
        self._rootfs = None if rootfs is None else rootfs.resolve()
        self._progress = progress or (lambda line: None)
        self._lock = threading.Lock()  # guards the attributes below, only briefly
        self._building: set[BubblewrapSandbox] = set()
        self._stopped = False

    def identity(self, name: str) -> str:
        """Return what changes with a system's programs and settings: the times of its folders."""
        root = "/" if name.startswith(HOST) else name.partition("+")[0]
        parts = [name]
        for path in _IDENTITY_PATHS:
            with contextlib.suppress(OSError):
                status = os.stat(os.path.join(root, path))  # noqa: PTH116 - for each episode
                parts.append(f"{path} {status.st_dev} {status.st_ino} {status.st_mtime_ns}")
        return " ".join(parts)

    def pinned(self, name: str) -> str:
        """Return nothing: these systems do not come from a registry."""
        return ""

    def resolve(self, source: ImageSource, purpose: str = "") -> str:
        """Return the path of a root file system, or the name that stands for the host's system."""
        name = self._find_base(replace(source, layers=()), purpose)
        for layer in source.layers:
            name = self._add_layer(name, layer)
        return name

    def describe(self, source: ImageSource, *, built: bool = True) -> Iterator[ImageFact]:
        """Yield what replaces an image, or why nothing does."""
        name = source.name
        try:
            system = self._find_base(replace(source, layers=()), "", build=False)
        except ImageError as error:
            problem, cause = str(error), error.cause
            yield ImageFact(name, "pull", present=False, problem=problem, cause=cause)
            return
        platform = str(platform_of_machine(machine()))
        if system.startswith(f"{HOST}+"):
            if not built:
                return
            path = self._layer_path(system)
            size = path.stat().st_size if path.exists() else 0
            yield ImageFact(name, "build", size > 0, size, platform, "this machine's system")
            return
        system = "this machine's system" if system == HOST else system
        yield ImageFact(name, "pull", present=True, platform=platform, replacement=system)

    def pull(self, source: ImageSource) -> None:
        """Pull nothing: there is no registry of systems.

        Raises:
            ImageError: nothing can replace the image.
        """
        self._find_base(replace(source, layers=()), "", build=False)

    def find_published(self, fact: ImageFact) -> tuple[str, ...]:
        """Return nothing."""
        return ()

    def stop_builds(self) -> None:
        """End the sandboxes that build."""
        with self._lock:
            self._stopped = True
            building = list(self._building)
        for sandbox in building:
            sandbox.close()

    def _add_layer(self, base: str, layer: Path) -> str:
        assert self._engine is not None, "layers are kept by an engine"
        try:
            with layer.open("rb") as file:
                name = f"{base}+{hashlib.sha256(file.read()).hexdigest()[:12]}"
                file.seek(0)
                self._engine.add_layer(name, file, base)
        except (OSError, SandboxError) as error:
            raise ImageError(f"{layer} cannot be laid over {base}: {error}") from None
        return name

    def _find_base(self, source: ImageSource, purpose: str, *, build: bool = True) -> str:
        """Return what replaces an image.

        Args:
            source: where the image comes from.
            purpose: the task that needs it.
            build: build a layer that does not exist yet; else only return its name.

        Raises:
            ImageError: nothing can replace it.
        """
        name = _rootfs_name(source)
        own_platform = platform_of_machine(machine())
        if source.platform not in (None, own_platform):
            raise ImageError(
                f"the image {source.name} is for {source.platform}, "
                f"but bubblewrap runs programs of this machine, {own_platform}: use "
                "--intercode-sandbox=docker",
                cause=f"made for {source.platform}",
            )
        if self._rootfs is not None:
            for folder in (self._rootfs / name, self._rootfs):
                if _is_root(folder):
                    self._check_owner(folder)
                    return str(folder)
            raise ImageError(
                f"--intercode-rootfs={self._rootfs}: neither it nor {name} in it is an unpacked "
                "root file system (it has no usr/bin/bash)",
                cause="no root file system",
            )
        dockerfile = source.dockerfile
        is_bundled = dockerfile is not None and dockerfile.resolve().is_relative_to(self._bundled)
        text = "" if dockerfile is None else read_dockerfile(dockerfile)
        if dockerfile is None or not (is_bundled or _is_plain(text)):
            raise ImageError(
                f"the image {source.name} is made by Docker; for bubblewrap, unpack "
                f"it (`docker export`) and give --intercode-rootfs, with it or with {name}/ in it",
                cause="made by Docker",
            )
        if source.context and self._engine is not None:
            name, context = _plan_layer(self._engine, dockerfile, source)
            if build:
                self._provide_layer(self._engine, name, dockerfile, context, purpose)
            return name
        missing = list(_find_missing_packages(text))
        if missing and not is_bundled:
            raise ImageError(
                f"this machine lacks what {dockerfile} installs: apt-get install "
                f"{' '.join(missing)}; or give --intercode-rootfs, with the image unpacked",
                cause=f"needs {' '.join(sorted(missing))}",
            )
        if missing:
            self._progress(
                f"this machine lacks what {dockerfile.name} installs, and some tasks may need it: "
                f"apt-get install {' '.join(missing)} (or give --intercode-rootfs)"
            )
        return HOST

    @staticmethod
    def _layer_path(name: str) -> Path:
        return cache_folder() / f"{name}.tar"

    def _provide_layer(
        self, engine: Bubblewrap, name: str, dockerfile: Path, context: bytes, purpose: str
    ) -> None:
        """Give the engine the host's system with a layer on top, under its name.

        Raises:
            ImageError: it cannot be built here.
        """
        path = self._layer_path(name)
        try:
            with one_builder(name, lambda: self._stopped):
                if not path.exists():
                    if self._verbosity >= 0:
                        self._progress(describe_build(name, dockerfile, purpose))
                    self._build(engine, dockerfile, context, path)
            with path.open("rb") as file:
                engine.add_layer(name, file, HOST)
        except (OSError, SandboxError) as error:
            raise ImageError(f"{dockerfile} cannot be built: {error}") from None

    def _build(self, engine: Bubblewrap, dockerfile: Path, context: bytes, path: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="pytest-intercode-") as output_folder:
            Path(output_folder).chmod(0o777)
            mounts = ((output_folder, _OUTPUT_FOLDER),)
            sandbox = engine.launch(SandboxSpec(HOST, limits=_LIMITS, mounts=mounts))
            with self._lock:
                self._building.add(sandbox)
                stopped = self._stopped
            try:
                if stopped:
                    raise SandboxError("the run is over")
                for step in read_instructions(read_dockerfile(dockerfile)):
                    if step.name == "COPY":
                        sandbox.unpack(_extract_copied(context, *step.rest.split()))
                    elif step.name == "RUN":
                        _run_step(sandbox, dockerfile, step.rest)
                excluded = " ".join(f"--exclude=./{pattern}" for pattern in _EXCLUDED)
                _run_step(
                    sandbox,
                    dockerfile,
                    _ARCHIVE_COMMAND.format(out=_OUTPUT_FOLDER, excluded=excluded),
                )
            finally:
                with self._lock:
                    self._building.discard(sandbox)
                sandbox.close()
            part = path.with_name(f"{path.name}.{os.getpid()}")
            shutil.move(Path(output_folder, "layer.tar"), part)
            part.replace(path)

    def _check_owner(self, folder: Path) -> None:
        owner = None if self._engine is None else self._engine.owner
        if owner not in (None, (folder / "usr").stat().st_uid):
            raise ImageError(
                f"--intercode-rootfs: {folder} belongs to another user, so nothing in it can be "
                f"changed; unpack it as the user with the id {owner}"
            )


def _plan_layer(engine: Bubblewrap, dockerfile: Path, source: ImageSource) -> tuple[str, bytes]:
    """Return the name of the host's system with a layer on top, and the context of that layer.

    Raises:
        ImageError: it cannot be built here.
    """
    server = _find_server_version(engine, dockerfile)
    context = build_context(dockerfile, source.context)
    digest = hashlib.sha256(server.encode() + context).hexdigest()[:12]
    return f"{HOST}+{dockerfile.name.removesuffix('.Dockerfile')}-{digest}", context


def _rootfs_name(source: ImageSource) -> str:
    """Return the name of a root file system for an image."""
    if source.dockerfile is None:
        return re.sub(r"[^\w.-]", "-", source.image or "")
    name = source.dockerfile.name
    return (
        name.removesuffix(".Dockerfile") if name != "Dockerfile" else source.dockerfile.parent.name
    )


def _is_root(folder: Path) -> bool:
    return os.path.lexists(folder / "usr/bin/bash") or os.path.lexists(folder / "bin/bash")


def _is_plain(dockerfile: str) -> bool:
    """Whether a Dockerfile does nothing beyond installing Debian packages."""
    steps = [" ".join((step.name, *step.rest.split())) for step in read_instructions(dockerfile)]
    return any(step.startswith("FROM ") for step in steps) and all(map(_PLAIN.fullmatch, steps))


def _find_missing_packages(dockerfile: str) -> Iterator[str]:
    """Yield the Debian packages that a Dockerfile installs and this machine does not have."""
    if not _STATUS.is_file():
        return  # not Debian: what is missing shows only in use
    installed = {name.split(":")[0] for name in _INSTALLED.findall(_STATUS.read_text("utf-8"))}
    for command in _INSTALL.findall(dockerfile):
        for word in command.replace("\\\n", " ").split():
            if not word.startswith("-") and word not in installed:
                yield word


def _find_server_version(engine: Bubblewrap, dockerfile: Path) -> str:
    """Return the version of this machine's database server."""
    search_path = os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin"
    programs = [path for name in _SERVERS if (path := shutil.which(name, path=search_path))]
    if not programs:
        raise ImageError(
            "tasks with the engine mysql need a server, but this machine has none: apt-get "
            "install mariadb-server-core mariadb-client-core (or use Docker, or "
            f"--intercode-rootfs with {dockerfile.name.removesuffix('.Dockerfile')}/ in it)"
        )
    if not engine.all_ids:
        raise ImageError(
            "a MySQL server runs as its own user, but sandboxes have only root here: "
            "install newuidmap (apt-get install uidmap) and have 65536 ids in /etc/subuid and "
            "/etc/subgid"
        )
    command = [programs[0], "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _run_step(sandbox: BubblewrapSandbox, dockerfile: Path, command: str) -> None:
    status, output = sandbox.admin(f"cd /; {command}", _STEP_TIMEOUT)
    if status != 0:
        lines = output.decode("utf-8", "replace").splitlines()[-12:]
        excerpt = "".join(f"\n    {line}" for line in lines)
        raise ImageError(f"{dockerfile} does not build: {command} ended with {status}{excerpt}")


def _extract_copied(context: bytes, source: str, target: str) -> bytes:
    """Return what ``COPY`` copies from a context, as an archive to be unpacked at the root."""
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(context)) as source_archive,
        tarfile.open(fileobj=buffer, mode="w") as target_archive,
    ):
        for member in source_archive:
            inner = PurePosixPath(member.name)
            if member.name == source:
                inner = PurePosixPath(inner.name)
            elif inner.is_relative_to(source.rstrip("/")):
                inner = inner.relative_to(source.rstrip("/"))
            else:
                continue
            data = source_archive.extractfile(member)
            member.name = str(PurePosixPath(target.strip("/"), inner))
            target_archive.addfile(member, data)
    return buffer.getvalue()
