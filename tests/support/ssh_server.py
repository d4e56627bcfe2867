"""An SSH server of the tests' own, on this machine, and a client that knows it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

__all__ = ["SshServer"]

_PATIENCE = 10.0


class SshServer:
    """Starts the server.

    Args:
        folder: a folder of its own.

    Attributes:
        url: the beginning of addresses of this machine; a path follows.
        programs: a folder with an ``ssh`` that has the key, to be put in front of ``PATH``.
    """

    def __init__(self, folder: Path) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        for name in ("host", "user"):
            key = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
            subprocess.run(key, check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"ssh://root@127.0.0.1:{port}"
        (folder / "server").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
            f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\n"
            "PermitRootLogin yes\n"
        )
        host_key = (folder / "host.pub").read_text()
        (folder / "known").write_text(f"[127.0.0.1]:{port} {host_key}")
        (folder / "client").write_text(
            f"Host *\n  IdentityFile {folder}/user\n  UserKnownHostsFile {folder}/known\n"
        )
        self.programs = folder / "bin"
        self.programs.mkdir()
        ssh = self.programs / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/client "$@"\n')
        ssh.chmod(0o755)
        command = ["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "server")]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log)
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError((folder / "log").read_text()) from None
                time.sleep(0.05)

    @staticmethod
    def obstacle() -> str:
        """Return why there can be none here, or nothing."""
        if os.geteuid() or not Path("/usr/sbin/sshd").exists() or not shutil.which("ssh"):
            return "there is no sshd here, or no ssh, or we are not root"
        return ""

    def close(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.wait()
