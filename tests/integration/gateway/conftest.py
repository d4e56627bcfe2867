"""A gateway in front of a scripted server, and a client that sends whatever it is given."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from pytest_intercode.agents.ledger import Ledger
from pytest_intercode.core.usage import Budget
from pytest_intercode.gateway.gateway import Gateway
from pytest_intercode.gateway.session import Session
from pytest_intercode.gateway.settings import GatewaySettings
from tests.support.model_server import ModelServer

KEY = "sk-the-real-key-of-this-test"
ROUTES = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/m:generateContent",
    "converse": "/model/m/converse",
    "azure": "/openai/deployments/m/chat/completions?api-version=2025-04-01-preview",
}

OTHER_ROUTES = {
    "azure-responses": "/openai/responses",
    "invoke": "/model/anthropic.m-v1%3A0/invoke",
}
"""Routes of APIs that are among the others already."""


def path_of(api: str, stream: bool) -> str:
    """Return the path of a request, without its query."""
    path = (ROUTES | OTHER_ROUTES)[api].partition("?")[0]
    return _streamed(path) if stream else path


def _streamed(path: str) -> str:
    """Return the path of a request whose answer is streamed, where the path says so."""
    if path.endswith("/invoke"):
        return f"{path}-with-response-stream"
    return f"{path}-stream" if path.endswith("/converse") else path.replace(":gen", ":streamGen")


Gateways = Callable[..., Gateway]


def body(api: str, **more: Any) -> dict[str, Any]:
    """Return a small request of an API."""
    said = [{"role": "user", "content": "hello"}]
    if api == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": "hello"}]}], **more}
    if api == "converse":
        return {"messages": [{"role": "user", "content": [{"text": "hello"}]}], **more}
    return {"model": "m", ("input" if api == "responses" else "messages"): said, **more}


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        return str((self.json.get("error") or self.json)["message"])


def ask(
    session: Session,
    path: str,
    payload: object = None,
    *,
    method: str = "POST",
    headers: dict[str, str] | None = None,
    token: str | None = None,
) -> Answered:
    """Send one request with a session's token, and return the answer.

    Some paths say whether the answer is streamed: here the body does, as for the others.
    """
    says_so = ":generateContent" in path or path.endswith(("/converse", "/invoke"))
    if says_so and isinstance(payload, dict) and "stream" in payload:
        payload = {**payload}
        if payload.pop("stream"):
            path = f"{_streamed(path)}{'?alt=sse' if ':gen' in path else ''}"
    port = int(session.url("anthropic").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    data = payload if isinstance(payload, bytes) else json.dumps(payload or {}).encode()
    given = {"authorization": f"Bearer {token or session.token}", **(headers or {})}
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in {"host": "gateway", "content-length": str(len(data)), **given}.items():
            connection.putheader(name, value)
        connection.endheaders(data)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answered(response.status, found, response.read())
    finally:
        connection.close()


@pytest.fixture
def gateways() -> Iterator[Gateways]:
    """Makes gateways to a server; they are closed when the test is over."""
    made: list[Gateway] = []

    def make(server: ModelServer | str, **more: Any) -> Gateway:
        url = server if isinstance(server, str) else server.url
        settings = GatewaySettings(
            **{
                "upstreams": {
                    "openai": f"{url}/v1",
                    **dict.fromkeys(("anthropic", "google", "azure", "bedrock"), url),
                },
                "keys": dict.fromkeys(("openai", "anthropic", "google", "azure", "bedrock"), KEY),
                **more,
            }
        )
        made.append(Gateway(settings))
        return made[-1]

    yield make
    for gateway in made:
        gateway.close()
    names = {thread.name.partition("_")[0] for thread in threading.enumerate()}
    assert "intercode-gateway" not in names


def opened(
    gateway: Gateway, budget: Budget | None = None, key: str = "task-1", **more: Any
) -> tuple[Session, Ledger]:
    """Open a session with a ledger of its own."""
    ledger = Ledger(budget)
    return gateway.open(key, spend=ledger.spend, keep=ledger.keep, **more), ledger
