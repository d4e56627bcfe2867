"""Vertex AI: the clients of both publishers, with a token of a service account."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.gateway.trajectory import final_message, turns
from tests.integration.gateway.conftest import Gateways, ask, body, opened
from tests.integration.gateway.test_clients import SCRIPT, use_gemini, use_messages
from tests.support.model_server import ModelServer, Request, Step
from tests.support.token_server import TokenServer

ACCOUNT = {"project": "mine-1", "location": "europe-west4"}
OWN = "/projects/mine-1/locations/europe-west4/publishers"


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServer]:
    """Where the tokens of a service account are had."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    with TokenServer() as server:
        path = tmp_path / "account.json"
        account = {
            "type": "service_account",
            "project_id": "of-the-file",
            "private_key_id": "k",
            "private_key": pem,
            "client_email": "me@of-the-file.iam.gserviceaccount.com",
            "token_uri": server.url,
        }
        path.write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        server.key = key.public_key()  # type: ignore[attr-defined]
        yield server


def _check_assertion(server: TokenServer) -> None:
    """See that a token was asked for as Google wants it: signed with the account's key."""
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.hashes import SHA256

    [request] = server.requests
    head, claims, signature = request["assertion"].split(".")
    decoded = base64.urlsafe_b64decode(signature + "==")
    key: Any = server.key  # type: ignore[attr-defined]
    key.verify(decoded, f"{head}.{claims}".encode(), padding.PKCS1v15(), SHA256())
    document = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert document["iss"] == "me@of-the-file.iam.gserviceaccount.com"
    assert document["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    assert document["exp"] > time.time()


def _use(publisher: str, session: Any, stream: bool) -> str:
    """Play an agent that names a project and a region of its own."""
    if publisher == "google":
        from google import genai
        from google.genai import types

        options = types.HttpOptions(base_url=session.url("vertex"))
        client: Any = genai.Client(vertexai=True, api_key=session.token, http_options=options)
        return use_gemini(client, stream)
    import anthropic

    client = anthropic.AnthropicVertex(
        base_url=f"{session.url('vertex')}/v1",
        access_token=session.token,
        project_id="other",
        region="us-east5",
        max_retries=0,
    )
    return use_messages(client, stream, model="m")


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("publisher", ["google", "anthropic"])
def test_the_clients_of_both_publishers(
    publisher: str, stream: bool, tokens: TokenServer, gateways: Gateways
) -> None:
    with ModelServer(SCRIPT) as server:
        settings = {"upstreams": {"vertex": server.url}, "account": ACCOUNT}
        session, ledger = opened(gateways(server, **settings))
        assert _use(publisher, session, stream) == "It is done."
        requests = list(server.requests)
    _check_assertion(tokens)
    assert (ledger.usage.input_tokens, ledger.usage.output_tokens) == (200, 14)
    [turn] = turns(session.exchanges)
    assert (turn.action, turn.observation) == ("echo hi > out.txt", "made")
    assert [request.model for request in requests] == ["m", "m"]
    for request in requests:
        assert f"{OWN}/{publisher}/models/m:" in request.path
        assert request.headers["authorization"] == ("Bearer sk-ant-oat01-renewed-access-0000000001")
        assert session.token not in f"{request}"
        assert "other" not in request.path


def test_a_refused_token_is_had_again_and_a_limit_is_passed_on(
    tokens: TokenServer, gateways: Gateways
) -> None:
    def play(request: Request) -> Step:
        if "0000000001" in request.headers["authorization"]:
            return Step(status=401, text="no")
        return Step(status=429, text="slow down", headers={"retry-after": "9000"})

    with ModelServer(play) as server:
        settings = {"upstreams": {"vertex": server.url}, "account": ACCOUNT}
        session, _ = opened(gateways(server, **settings))
        path = "/v1beta1/projects/x/locations/y/publishers/google/models/m:generateContent"
        answer = ask(session, path, body("gemini"))
        assert (answer.status, answer.headers["retry-after"]) == (429, "9000")
        assert len(server.requests) == 2
    assert len(tokens.requests) == 2
    assert final_message(session.exchanges) == ""


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "there are no application default credentials of Google Cloud: set GOOGLE_APPL"),
        ("{}", "there are no application default credentials of Google Cloud: set GOOGLE_APPL"),
        ("refused", "the application default credentials of Google Cloud cannot be used: Refresh"),
    ],
)
def test_credentials_that_are_not_good_are_nobodys_fault(
    content: str | None, reason: str, tokens: TokenServer, gateways: Gateways, tmp_path: Path
) -> None:
    path = tmp_path / "account.json"
    with TokenServer(status=403) as refusing:
        if content is None:
            path.unlink()
        elif content == "refused":
            account = json.loads(path.read_text())
            path.write_text(json.dumps({**account, "token_uri": refusing.url}))
        else:
            path.write_text(content)
        upstreams = {"vertex": "http://127.0.0.1:9"}
        session, _ = opened(gateways("", upstreams=upstreams, keys={}, account=ACCOUNT))
        rest = "publishers/anthropic/models/m:rawPredict"
        answer = ask(session, f"/v1/projects/x/locations/y/{rest}", {"messages": []})
        assert answer.status == 502
        assert answer.message.startswith(reason)
        assert session.outage().startswith(reason)


def test_a_project_is_the_users_alone(gateways: Gateways) -> None:
    with ModelServer(["x"]) as server:
        session, _ = opened(gateways(server, upstreams={"vertex": server.url}))
        for place in ("", "/projects/x/locations/y"):
            path = f"/v1{place}/publishers/google/models/m:generateContent"
            refused = ask(session, path, body("gemini"))
            assert refused.status == 403
            assert refused.message == "GOOGLE_CLOUD_PROJECT is not set: no server has this API"
        assert server.requests == []


def test_settings_take_a_project_of_the_environment() -> None:
    environment = {"GOOGLE_CLOUD_PROJECT": "mine-1", "GOOGLE_CLOUD_LOCATION": "eu"}
    settings = GatewaySettings.of_environment(environment)
    assert settings.upstream("vertex") == "https://aiplatform.eu.rep.googleapis.com"
    assert settings.configured == ("vertex",)
    del environment["GOOGLE_CLOUD_LOCATION"]
    assert GatewaySettings.of_environment(environment).account["location"] == "global"
    for location in ("evil.test/", "eu@x", "US"):
        settings = GatewaySettings.of_environment(
            {**environment, "GOOGLE_CLOUD_LOCATION": location}
        )
        assert (settings.account, settings.upstream("vertex")) == ({}, "")
