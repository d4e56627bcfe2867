"""A Docker engine of the tests' own, which may be ended, stopped, filled up and lose its socket.

Its daemon shares nothing with the machine's: its data are on a small disk in memory, and its state,
its socket and its network namespace are its own. There is no network in it, but for a cable to this
machine if it is to be reached by TCP, with TLS. If it is to be as in a virtual machine, it does not
see this machine's files either.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException, NotFound
from requests.exceptions import RequestException

__all__ = ["SecondEngine", "existing", "make_certificates"]

_SIZE = "900m"
_PATIENCE = 40.0  # seconds in which it starts or ends
_HERE, _THERE, _PORT = "198.18.77.1", "198.18.77.2", 2376  # addresses for tests, by RFC 2544
_numbers = itertools.count()

# What a virtual machine does not share: users' folders and temporary ones. Its own folder, which is
# in one of them, is put back.
_PRIVATE = ("/home", "/root", "/tmp", "/var/tmp", str(Path(__file__).resolve().parents[2]))
_HIDE = """\
set -eu
own=$1
shift
mount --rbind "$own" /mnt
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mount -t tmpfs -o size=64m,mode=1777 none "$1"; fi
  shift
done
shift
mkdir -p "$own"
mount --rbind /mnt "$own"
umount --lazy /mnt
exec "$@"
"""


def make_certificates(folder: Path) -> None:
    """Make an authority, and certificates of the folders ``engine`` and ``client`` by it."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")

    def openssl(*words: str | Path) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    # Python 3.13 verifies strictly, and asks for what RFC 5280 does.
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    subject = ("-subj", "/CN=authority")
    openssl("req", "-x509", *key, *subject, *usage, "-keyout", "ca.key", "-out", "ca.pem")
    for name, extensions in (
        ("engine", f"subjectAltName=IP:{_THERE}\nextendedKeyUsage=serverAuth"),
        ("client", "extendedKeyUsage=clientAuth"),
    ):
        path = folder / name
        path.mkdir()
        (path / "more").write_text(f"authorityKeyIdentifier=keyid\n{extensions}")
        shutil.copy(folder / "ca.pem", path / "ca.pem")
        openssl(
            "req", *key, "-subj", f"/CN={name}", "-keyout", path / "key.pem", "-out", path / "csr"
        )
        signer = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", path / "more")
        openssl("x509", "-req", "-in", path / "csr", *signer, "-out", path / "cert.pem")


def existing(api: docker.APIClient, label: str = "") -> list[dict[str, Any]]:
    """Return the containers that an engine lists, but for those that it then says there are not.

    Docker 20.10 lists such, until it is started again, if it was killed and removed them while it
    started.
    """

    def exists(row: dict[str, Any]) -> bool:
        try:
            return bool(api.inspect_container(row["Id"]))
        except NotFound:
            return False

    return list(filter(exists, api.containers(all=True, filters={"label": label} if label else {})))


class SecondEngine:
    """Starts the daemon, which is no child of this process, as ``start`` may be called in any.

    Args:
        folder: a folder of its own, with a short path.
        tcp: it also listens on TCP, with certificates of its own.
        size: of the disk.
        machine: it is as in a virtual machine, which shares no folder with this one.

    Attributes:
        url: what ``DOCKER_HOST`` has to be.
        data: the folder of the images and containers.
        tcp: its address by TCP; empty if it has none.
        certificates: the folder of a client's certificates for that.
    """

    def __init__(
        self, folder: Path, *, tcp: bool = False, size: str = _SIZE, machine: bool = False
    ) -> None:
        self._folder = folder
        self._machine = machine
        self._cable = f"ic{os.getpid() % 100_000:05d}{next(_numbers)}" if tcp else ""
        self.tcp = f"tcp://{_THERE}:{_PORT}" if tcp else ""
        self.certificates = folder / "client"
        if tcp:
            make_certificates(folder)
        self._socket = folder / "engine.sock"
        self._pidfile = folder / "pid"
        self.url = f"unix://{self._socket}"
        self.data = folder / "data"
        self.data.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(self.data)]
        subprocess.run(mount, check=True)
        self.start()

    @staticmethod
    def obstacle() -> str:
        """Return why there can be none here, or nothing."""
        if os.geteuid():
            return "a second Docker engine needs root"
        if not all(map(shutil.which, ("dockerd", "containerd", "setsid", "unshare"))):
            return "there is no dockerd here to be started a second time"
        return ""

    def pid(self) -> int:
        """Return the daemon's process, whose network is its own."""
        return int(self._pidfile.read_text())

    def start(self) -> None:
        """Start the daemon, unless it runs, and wait until it answers."""
        if not self._alive():
            # It would believe both files, and wait for a process that is gone.
            self._pidfile.unlink(missing_ok=True)
            (self._folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)
            command = [
                # In a network of its own: without a bridge it removes that of the machine's engine.
                *("setsid", "--fork", "unshare", "--net", *self._hidden(), "dockerd"),
                *("--host", self.url),
                *("--data-root", str(self.data), "--exec-root", str(self._folder / "exec")),
                *("--pidfile", str(self._pidfile), "--cgroup-parent", f"/{self._folder.name}"),
                *("--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-masq=false"),
                *("--shutdown-timeout", "2"),
            ]
            if self._cable:
                command += [
                    *("--host", f"tcp://0.0.0.0:{_PORT}", "--tlsverify"),
                    *(
                        f"--tls{name}={self._folder / 'engine' / file}.pem"
                        for name, file in (("cacert", "ca"), ("cert", "cert"), ("key", "key"))
                    ),
                ]
            with (self._folder / "log").open("ab") as log:
                subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True
                )
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            if time.monotonic() > deadline:
                end = (self._folder / "log").read_text()[-2000:]
                raise RuntimeError(f"the second engine does not start: {end}")
            time.sleep(0.1)
        if self._cable:
            self._plug_in()

    def _hidden(self) -> list[str]:
        """Return what starts a command without this machine's files, if that is wanted."""
        if not self._machine:
            return []
        return ["--mount", "sh", "-c", _HIDE, "sh", str(self._folder), *_PRIVATE, "--"]

    def _plug_in(self) -> None:
        """Lay a cable from this machine's network into the daemon's."""
        pid = self._pidfile.read_text()
        inside = ("nsenter", "--net", "--target", pid)
        subprocess.run(["ip", "link", "delete", self._cable], check=False, capture_output=True)
        for command in (
            ("ip", "link", "add", self._cable, "type", "veth", "peer", "eth9", "netns", pid),
            ("ip", "address", "add", f"{_HERE}/30", "dev", self._cable),
            ("ip", "link", "set", self._cable, "up"),
            (*inside, "ip", "address", "add", f"{_THERE}/30", "dev", "eth9"),
            (*inside, "ip", "link", "set", "eth9", "up"),
        ):
            subprocess.run(command, check=True, capture_output=True)

    def cut(self, *, mended: bool = False) -> None:
        """Cut the cable, of which nobody is told, or mend it."""
        inside = ("nsenter", "--net", "--target", self._pidfile.read_text())
        state = "up" if mended else "down"
        subprocess.run([*inside, "ip", "link", "set", "eth9", state], check=True)

    def load(self, name: str) -> None:
        """Have an image of the machine's own engine, unless it is there by this name."""
        with self._client() as client, contextlib.closing(docker.APIClient()) as source:
            image_id = source.inspect_image(name)["Id"]  # type: ignore[no-untyped-call]
            if not any(row["Id"] == image_id for row in client.images(name)):
                client.load_image(source.get_image(name))  # type: ignore[no-untyped-call]

    def send(self, number: signal.Signals) -> None:
        """Send the daemon a signal."""
        os.kill(int(self._pidfile.read_text()), number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the daemon; what it started goes on, if it is killed."""
        if not self._alive():
            return
        self.send(number)
        deadline = time.monotonic() + _PATIENCE
        while self._alive() and time.monotonic() < deadline:
            time.sleep(0.05)

    def lose_socket(self) -> None:
        """Remove the socket; who is connected stays so."""
        self._socket.unlink()

    def fill(self) -> None:
        """Fill the disk of the images and containers."""
        with contextlib.suppress(OSError), (self.data / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(1024**2)):
                pass

    def move_tag(self, name: str) -> None:
        """Let a name stand for another image, which has a file ``/moved``."""
        with self._client() as api:
            container = api.create_container(
                name, ["bash", "-c", "echo moved > /etc/profile; touch /moved"]
            )
            api.start(container)
            api.wait(container)
            repository, _, tag = name.rpartition(":")
            api.commit(container, repository, tag)
            api.remove_container(container, force=True)

    def remove_image(self, name: str) -> None:
        """Remove an image, as far as containers let it go."""
        with self._client() as api:
            api.remove_image(name, force=True)

    def containers(self, seconds: float = 10.0) -> list[str]:
        """Return what is left after so long, of an engine that is mended before."""
        (self.data / "filler").unlink(missing_ok=True)
        if self._alive():
            self.send(signal.SIGCONT)
            if not self._socket.exists():
                self.end(signal.SIGTERM)
        self.start()
        deadline = time.monotonic() + seconds
        while True:
            with self._client() as api:
                rows = [f"{row['Id'][:12]} {row['State']}" for row in existing(api)]
            if not rows or time.monotonic() > deadline:
                return rows
            time.sleep(0.2)

    def close(self) -> None:
        """End the daemon and all that it started, and unmount what it has mounted."""
        with contextlib.suppress(OSError):
            self.send(signal.SIGCONT)
        self.end(signal.SIGTERM)
        if self._cable:
            subprocess.run(["ip", "link", "delete", self._cable], check=False, capture_output=True)
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        mounted = [line.split()[4] for line in lines]
        for place in reversed([path for path in mounted if str(self._folder) in path]):
            subprocess.run(["umount", "--lazy", place], check=False)
        name, top = self._folder.name, Path("/sys/fs/cgroup")
        groups = [*top.glob(name), *top.glob(f"*/{name}")]
        groups += [path for group in groups for path in group.rglob("*") if path.is_dir()]
        for group in sorted(groups, reverse=True):  # what is in a group before it
            with contextlib.suppress(OSError):
                group.rmdir()
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def _client(self) -> Iterator[docker.APIClient]:
        with contextlib.closing(docker.APIClient(self.url, timeout=30)) as api:
            yield api

    def _alive(self) -> bool:
        try:
            state = Path(f"/proc/{int(self._pidfile.read_text())}/stat").read_text()
        except (OSError, ValueError):
            return False
        return "(dockerd) Z" not in state and "(dockerd)" in state

    def _answers(self) -> bool:
        try:
            with self._client() as api:
                return bool(api.ping())
        except (DockerException, RequestException, OSError):
            return False
