"""What is Bedrock's own: signatures, binary streams, models of whose API only a part is served."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_intercode.gateway.frames import FRAMES, encode_frame
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.gateway.trajectory import final_message
from tests.integration.gateway.conftest import Gateways, ask, body, opened, path_of
from tests.integration.gateway.test_clients import converse
from tests.support.model_server import ModelServer, Request, Step

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "AWS_SESSION_TOKEN": "FwoGZXIvYXdzEXAMPLEsession0123456789",
    "AWS_REGION": "eu-central-1",
}
AWS = GatewaySettings.of_environment(KEYS).aws


def _check_signature(request: Request, server: ModelServer) -> None:
    """See that botocore makes the same signature of what has come."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    authorization = request.headers["authorization"]
    names = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    assert {"host", "x-amz-date", "x-amz-security-token", "content-type"} == set(names)
    data = json.dumps(request.body, separators=(",", ":")).encode()
    signed = AWSRequest(
        request.method,
        server.url + request.path,
        data=data,
        headers={name: request.headers[name] for name in names},
    )
    signed.context["timestamp"] = request.headers["x-amz-date"]
    keys = Credentials(*list(KEYS.values())[:3])
    signer = SigV4Auth(keys, "bedrock", "eu-central-1")
    text = signer.string_to_sign(signed, signer.canonical_request(signed))
    assert signer.signature(text, signed) in authorization


@pytest.mark.parametrize("model", ["m", "us.anthropic.claude-opus-5-v1:0"])
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_requests_are_signed_with_the_users_keys(
    stream: bool, model: str, gateways: Gateways
) -> None:
    with ModelServer(["hello"]) as server:
        session, _ = opened(gateways(server, keys={}, aws=AWS))
        path = path_of("converse", stream).replace("/m/", f"/{model.replace(':', '%3A')}/")
        assert ask(session, path, body("converse")).status == 200
        [request] = server.requests
        _check_signature(request, server)
    assert request.model == model
    assert session.token not in str(request.headers)
    settings = GatewaySettings(aws=AWS)
    assert set(settings.secrets) == {KEYS["AWS_SECRET_ACCESS_KEY"], KEYS["AWS_SESSION_TOKEN"]}
    for secret in settings.secrets:
        assert secret not in repr(settings)
    environment = {**KEYS, **session.variables()}
    assert "AWS_SESSION_TOKEN" in session.hidden(KEYS)
    assert environment["AWS_SECRET_ACCESS_KEY"] == environment["AWS_ACCESS_KEY_ID"] == session.token


def test_a_client_finds_all_that_it_needs_in_its_variables(
    gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(["hello"]) as server:
        session, _ = opened(gateways(server))
        for name, value in session.variables().items():
            monkeypatch.setenv(name, value)
        import boto3

        client = boto3.client("bedrock-runtime", region_name="us-east-1")
        messages = [{"role": "user", "content": [{"text": "hello"}]}]
        answer = client.converse(modelId="m", messages=messages)
        client.close()
    assert answer["output"]["message"]["content"] == [{"text": "hello"}]


def test_an_error_is_one_of_awss(gateways: Gateways) -> None:
    from botocore.exceptions import ClientError

    with ModelServer([Step(status=400, body={"message": "no such model"})]) as server:
        session, _ = opened(gateways(server))
        with pytest.raises(ClientError, match="no such model"):
            converse(session, stream=False)
        session.close()
        with pytest.raises(ClientError, match=r"\(AccessDeniedException\).* the episode is over"):
            converse(session, stream=True)
        assert len(server.requests) == 1


def _stream(*frames: bytes) -> Any:
    """Return a server's step of these frames, which are no text."""
    return Step(body=b"".join(frames), content_type=FRAMES)


def test_an_exception_in_a_stream_is_passed_on_and_the_answer_is_not_whole(
    gateways: Gateways,
) -> None:
    pieces = (
        encode_frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "half"}}),
        encode_frame("throttlingException", {"message": "slow down"}),
    )
    with ModelServer([_stream(*pieces)]) as server:
        session, ledger = opened(gateways(server))
        answer = ask(session, path_of("converse", stream=True), body("converse"))
    assert answer.body == b"".join(pieces)
    [exchange] = session.exchanges
    assert not exchange.complete
    assert final_message([exchange]) == "half"
    assert ledger.usage.output_tokens > 0  # an estimate


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 64,
        b"\xff" * 64,
        encode_frame("messageStart", {})[:-1] + b"\0",
        encode_frame("messageStart", {}).replace(b":event-type", b":event-typo"),
        b"data: {}\n\n" * 4,
    ],
    ids=["zeros", "ones", "checksum", "changed", "events"],
)
def test_a_stream_that_is_broken_ends(data: bytes, gateways: Gateways) -> None:
    with ModelServer([_stream(data)]) as server:
        session, _ = opened(gateways(server))
        answer = ask(session, path_of("converse", stream=True), body("converse"))
    assert answer.status == 502
    assert answer.message == "a frame of its stream is broken"


def test_invoke_is_for_anthropics_models_and_its_betas_are_checked(gateways: Gateways) -> None:
    content = {**body("messages"), "anthropic_version": "bedrock-2023-05-31", "max_tokens": 9}
    del content["model"]
    with ModelServer(["hello"]) as server:
        session, _ = opened(gateways(server))
        refused = ask(session, "/model/amazon.nova-pro-v1%3A0/invoke", content)
        assert (refused.status, "use Converse for others" in refused.message) == (400, True)
        path = path_of("invoke", stream=False)
        refused = ask(session, path, {**content, "anthropic_beta": ["context-1m-2025-08-07"]})
        assert (refused.status, "the beta 'context-1m" in refused.message) == (400, True)
        refused = ask(session, path, {**content, "mcp_servers": [{"url": "http://x"}]})
        assert refused.status == 400
        passed = {**content, "anthropic_beta": ["effort-2025-11-24"]}
        assert ask(session, path, passed).status == 200
        [request] = server.requests
    assert request.body == passed
