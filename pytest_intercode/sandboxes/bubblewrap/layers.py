"""Layers that a Dockerfile of ours adds to the host's system: the databases of a suite.

The steps of the Dockerfile are played in a sandbox; what they leave is kept as an archive in the
user's cache, and in memory while a run uses it.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from pytest_intercode.core.task import ImageSource, Limits
from pytest_intercode.errors import ImageError, SandboxError
from pytest_intercode.sandboxes.bubblewrap.box import Box
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.docker.images import build_context
from pytest_intercode.sandboxes.protocol import HOST, SandboxSpec

__all__ = ["Layers"]

_STEP = re.compile(r"^(COPY|RUN)\s+(.+)$", re.MULTILINE)
_LIMITS = Limits(memory=1024**3, cpus=2.0, pids=400, file_size=2 * 1024**3)
_PATIENCE = 600.0
_SERVERS = ("mariadbd", "mysqld")
_OUT = "/run/out"
# What is mounted there, or fresh in every sandbox.
_KEEP = "tar --one-file-system -C / -cf {out}/layer.tar {without} ."
_WITHOUT = ("dev", "proc", "run", "sys", "tmp", "usr")


class Layers:
    """Builds layers, or finds those that were built before.

    Args:
        engine: where sandboxes come from.
        progress: called with one line for each slow step.
    """

    def __init__(self, engine: Bubblewrap, progress: Callable[[str], None]) -> None:
        self._engine = engine
        self._progress = progress

    def image(self, dockerfile: Path, source: ImageSource) -> str:
        """Return the name under which the engine knows the host's system with a layer on it.

        Raises:
            ImageError: it cannot be built here.
        """
        server = self._server(dockerfile)
        context = build_context(dockerfile, source.context)
        digest = hashlib.sha256(server.encode() + context).hexdigest()[:12]
        name = f"{HOST}+{dockerfile.name.removesuffix('.Dockerfile')}-{digest}"
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        path = home / "pytest-intercode" / f"{name}.tar"
        try:
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                self._progress(f"building {name} from {dockerfile.name} (first use)")
                self._build(dockerfile, context, path)
            with path.open("rb") as file:
                self._engine.add_layer(name, file)
        except (OSError, SandboxError) as error:
            raise ImageError(f"{dockerfile} cannot be built: {error}") from None
        return name

    def _server(self, dockerfile: Path) -> str:
        """Return which database server there is."""
        place = os.environ.get("PATH", "") + ":/usr/sbin:/usr/bin"
        found = [path for name in _SERVERS if (path := shutil.which(name, path=place))]
        if not found:
            raise ImageError(
                "tasks with the engine mysql need a server, and this machine has none: apt-get "
                "install mariadb-server-core mariadb-client-core (or use Docker, or "
                f"--intercode-rootfs with {dockerfile.name.removesuffix('.Dockerfile')}/ in it)"
            )
        if not self._engine.everyone:
            raise ImageError(
                "a MySQL server runs as a user of its own, and sandboxes have root alone here: "
                "install newuidmap (apt-get install uidmap) and have 65536 ids in /etc/subuid and "
                "/etc/subgid"
            )
        told = subprocess.run([found[0], "--version"], capture_output=True, text=True, check=False)
        return told.stdout

    def _build(self, dockerfile: Path, context: bytes, path: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="pytest-intercode-") as out:
            Path(out).chmod(0o777)
            mounts = ((out, _OUT),)
            box = self._engine.launch(SandboxSpec(HOST, limits=_LIMITS, mounts=mounts))
            try:
                for word, rest in _STEP.findall(dockerfile.read_text("utf-8")):
                    if word == "COPY":
                        box.unpack(_copied(context, *rest.split()))
                    else:
                        _run(box, dockerfile, rest)
                without = " ".join(f"--exclude=./{each}" for each in _WITHOUT)
                _run(box, dockerfile, _KEEP.format(out=_OUT, without=without))
            finally:
                box.close()
            part = path.with_name(f"{path.name}.{os.getpid()}")
            shutil.move(Path(out, "layer.tar"), part)
            part.replace(path)


def _run(box: Box, dockerfile: Path, command: str) -> None:
    status, output = box.admin(f"cd /; {command}", _PATIENCE)
    if status != 0:
        lines = output.decode("utf-8", "replace").splitlines()[-12:]
        said = "".join(f"\n    {line}" for line in lines)
        raise ImageError(f"{dockerfile} does not build: {command} ended with {status}{said}")


def _copied(context: bytes, source: str, target: str) -> bytes:
    """Return what ``COPY`` copies out of a context, as an archive to be unpacked at the root."""
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(context)) as taken,
        tarfile.open(fileobj=buffer, mode="w") as given,
    ):
        for member in taken:
            inner = PurePosixPath(member.name)
            if member.name == source:
                inner = PurePosixPath(inner.name)
            elif inner.is_relative_to(source.rstrip("/")):
                inner = inner.relative_to(source.rstrip("/"))
            else:
                continue
            data = taken.extractfile(member)
            member.name = str(PurePosixPath(target.strip("/"), inner))
            given.addfile(member, data)
    return buffer.getvalue()
