"""What an agent in a sandbox may try to reach past the gateway; prints what came of it."""

import json
import os
import socket
import sys
from pathlib import Path

gateway = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")
port = int(gateway.rpartition(":")[2])
token = f"Authorization: Bearer {os.environ['OPENAI_API_KEY']}"


def sent(first: str, *headers: str) -> str:
    """Return the first line of the answer to a request that is written by hand."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        lines = [f"{first} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]
        connection.sendall("\r\n".join(lines).encode())
        return connection.recv(4096).split(b"\r\n")[0].decode()


def connected(host: str, port: int, kind: int = socket.AF_INET) -> str:
    """Return what came of a connection."""
    with socket.socket(kind) as connection:
        connection.settimeout(1)
        try:
            connection.connect((host, port))
        except OSError as error:
            return error.strerror or str(error)
        return "connected"


def named(host: str) -> str:
    """Return the address of a name, or that it has none."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return "no name"


model = json.dumps({"model": "m", "messages": []})
smuggled = ("Content-Length: 5", "Transfer-Encoding: chunked")
seen = {
    "connect": sent("CONNECT 1.1.1.1:443", token),
    "connect-upstream": sent(f"CONNECT 127.0.0.1:{sys.argv[1]}", token),
    "absolute": sent("GET http://1.1.1.1/", token),
    "absolute-with-a-route": sent("GET http://1.1.1.1/v1/models", token),
    "another-path": sent("GET /v1/files", token),
    "dots": sent("GET /v1/../admin", token),
    "encoded-dots": sent("GET /v1/%2e%2e/admin", token),
    "a-url-as-a-path": sent("GET /http://1.1.1.1/", token),
    "no-token": sent("GET /v1/models"),
    "another-token": sent("GET /v1/models", "Authorization: Bearer sk-other"),
    "smuggling": sent("POST /v1/chat/completions", token, *smuggled),
    "another-method": sent("PUT /v1/models", token),
    "forwarded": sent("GET /v1/files", token, "X-Forwarded-Host: 1.1.1.1"),
    "a-host": connected("1.1.1.1", 443),
    "a-host-by-ipv6": connected("2606:4700:4700::1111", 443, socket.AF_INET6),
    "metadata": connected("169.254.169.254", 80),
    "the-model-itself": connected("127.0.0.1", int(sys.argv[1])),
    "a-private-host": connected("10.0.0.1", 22),
    "a-name": named("example.com"),
    "the-docker-socket": str(Path("/var/run/docker.sock").exists()),
}
print(json.dumps(seen))
