"""Services for tests: small servers that every Debian can run, in the Perl that it comes with."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from pytest_intercode.core.machine import HealthCheck, ImageSource, Service
from pytest_intercode.core.task import Task
from pytest_intercode.suites.harbor.datasets import folder_tasks
from tests.support.task_folders import write_texts

__all__ = ["IMAGE", "KEEPER", "READY", "ask", "server", "write_files", "write_task"]

IMAGE = "debian:bookworm-slim"

# Keeps what is put under a name: "put NAME VALUE", "get NAME". Each connection is one line.
KEEPER = r"""
use IO::Socket::INET; $| = 1;
my $port = $ARGV[0] // 7000;
my $server = IO::Socket::INET->new(LocalPort => $port, Listen => 20, ReuseAddr => 1) or die $!;
open(my $log, '>>', '/var/log/requests') or die; $log->autoflush(1);
while (my $client = $server->accept) {
  my $line = <$client> // '';
  print $log $line;
  my ($do, $name, $value) = split ' ', $line, 3;
  $kept{$name} = $value if ($do // '') eq 'put';
  print $client $kept{$name} // "nothing\n" if ($do // '') eq 'get';
  close $client;
}
"""
READY = HealthCheck(("bash", "-c", ": </dev/tcp/127.0.0.1/7000"), interval=0.2)


def server(name: str = "db", **fields: Any) -> Service:
    """Return a service that keeps values, on port 7000."""
    command = ("perl", "-e", KEEPER)
    values: dict[str, Any] = {
        "image": ImageSource(image=IMAGE),
        "command": command,
        "health": READY,
    } | fields
    return Service(name, **values)


def ask(line: str, host: str = "db", port: int = 7000) -> str:
    """Return a command of bash that says a line to a server, and prints the answer."""
    return f"exec 9<>/dev/tcp/{host}/{port} && echo '{line}' >&9 && cat <&9"


def write_files(folder: Path, files: dict[str, str]) -> Task:
    """Write a task folder, and return its task."""
    (task,) = folder_tasks(write_texts(folder, files))
    assert task.skip is None
    return task


def write_task(folder: Path, more: dict[str, str], toml: str = "") -> Task:
    """Write a Harbor task whose machine has a server next to it."""
    compose = {
        "services": {
            "main": {"depends_on": {"db": {"condition": "service_healthy"}}},
            "db": {
                "image": IMAGE,
                "command": ["perl", "-e", KEEPER.replace("$", "$$")],
                "expose": ["7000"],
                "healthcheck": {"test": ["CMD-SHELL", shlex.join(READY.command)], "interval": "1s"},
            },
        }
    }
    files = {
        "task.toml": toml,
        "instruction.md": "Put blue under colour.\n",
        "environment/Dockerfile": f"FROM {IMAGE}\nWORKDIR /app\n",
        "environment/docker-compose.yaml": json.dumps(compose),
        "solution/solve.sh": f'bash -c "{ask("put colour blue")}"\n',
    }
    return write_files(folder, files | more)
