"""A request through the gateway, against the direct connection to the same server.

The server is a scripted one in its own process. Both ways send requests to it in turn, over
persistent connections, with a first request as large as those of coding agents (40 kB), and a
session keeps a record as in an episode.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.measuring import Scale, Unavailable, in_turn
from benchmarks.table import Bound, Part, Row, duration
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.gateway import Gateway
from pytest_intercode.gateway.settings import GatewaySettings

ROUTES = {
    "chat completions": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
SIZE = 40_000  # bytes of a request
PLAIN = Bound("at most", 0.003, "3 ms more")
FIRST = Bound("at most", 0.005, "5 ms more")


@contextlib.contextmanager
def scripted_server() -> Iterator[str]:
    """Start a server in its own process, and yield its address."""
    command = [sys.executable, "-m", "tests.support.model_server", "--say", "It is done."]
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.stdout.read()


def request(path: str, stream: bool) -> bytes:
    """Return a request of a usual size."""
    text = "A sentence of instructions, as long prompts have many. " * (SIZE // 56)
    messages = [{"role": "user", "content": text}]
    key = "input" if path.endswith("responses") else "messages"
    return json.dumps({"model": "m", key: messages, "stream": stream}).encode()


def asking(
    connection: http.client.HTTPConnection, path: str, token: str, stream: bool, times: int
) -> Callable[[], float]:
    """Return a measure: the median time to an answer, or to the first byte of a stream."""
    data = request(path, stream)
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    def once() -> float:
        began = time.perf_counter()
        connection.request("POST", path, data, headers)
        answer = connection.getresponse()
        first = answer.read(1) if stream else answer.read()
        took = time.perf_counter() - began
        assert answer.status == 200, first
        answer.read()
        return took

    return lambda: statistics.median(once() for _ in range(times))


def measure(scale: Scale) -> Part:
    """Measure each API, plain and streamed.

    Raises:
        Unavailable: the gateway's extra is not installed.
    """
    part = Part("a request through the gateway")
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(scripted_server())
        settings = GatewaySettings(
            upstreams={"openai": f"{url}/v1", "anthropic": url}, keys={"openai": "sk-benchmark"}
        )
        try:
            gateway = Gateway(settings)
        except ConfigurationError as error:
            raise Unavailable(str(error)) from None
        stack.callback(gateway.close)
        session = gateway.open("benchmark", spend=lambda **_: None)
        ends = {"gateway": session.url("anthropic"), "direct": url}
        connections = {
            name: http.client.HTTPConnection(str(urlsplit(end).netloc))
            for name, end in ends.items()
        }
        for connection in connections.values():
            stack.callback(connection.close)
        for stream, bound in ((False, PLAIN), (True, FIRST)):
            for api, path in ROUTES.items():
                times = in_turn(
                    {
                        name: asking(connection, path, session.token, stream, scale.pick(20, 2))
                        for name, connection in connections.items()
                    },
                    scale.pick(15, 2),
                )
                ours, direct = times["gateway"], times["direct"]
                title = "first byte of a stream" if stream else "an answer in one piece"
                part.rows.append(
                    Row(
                        f"{title}, {api}",
                        duration(ours),
                        f"direct: {duration(direct)}",
                        ours / direct,
                        bound,
                        ours - direct,
                    )
                )
    return part
