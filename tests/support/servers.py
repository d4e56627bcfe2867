"""Services for tests: small servers that every Debian can run, in the Perl that it comes with."""

from __future__ import annotations

from typing import Any

from pytest_intercode.core.machine import HealthCheck, ImageSource, Service

__all__ = ["IMAGE", "KEEPER", "READY", "ask", "server"]

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
