"""Signatures of AWS: its published examples, and botocore's for whatever else."""

from __future__ import annotations

import random
import string
from datetime import datetime
from urllib.parse import quote

import pytest

from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.gateway.sigv4 import AwsKeys, sign

KEYS = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1")
TIME = datetime(2015, 8, 30, 12, 36)


@pytest.mark.parametrize(
    ("method", "path", "signature"),
    [
        ("GET", "/", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "/", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "GET",
            "/?Param2=value2&Param1=value1",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
    ],
    ids=["get-vanilla", "post-vanilla", "get-vanilla-query-order-key-case"],
)
def test_the_examples_of_awss_test_suite(method: str, path: str, signature: str) -> None:
    url = f"https://example.amazonaws.com{path}"
    headers = sign(KEYS, method, url, {}, b"", TIME, "service")
    assert headers["x-amz-date"] == "20150830T123600Z"
    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders=host;x-amz-date, Signature={signature}"
    )


def test_it_is_botocores_signature() -> None:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    chance = random.Random(4)
    letters = string.ascii_letters + string.digits + " :/+%~-_.!'()*äß"

    def text(length: int) -> str:
        return "".join(chance.choices(letters, k=length))

    for _ in range(200):
        session = text(20).strip() if chance.random() < 0.5 else ""
        keys = AwsKeys("AKID", f"{text(30)}x", "eu-west-1", quote(session))
        path = f"/model/{quote(text(9), safe='')}/converse"
        query = f"{quote(text(3), safe='')}x={quote(text(4), safe='')}&b="
        body = text(50).encode()
        url = f"https://h.example:8443{path}?{query}"
        headers = {"content-type": f"a  {quote(text(5))} b"}
        own_headers = sign(keys, "POST", url, headers, body, TIME)
        request = AWSRequest("POST", url, data=body, headers={**headers, **own_headers})
        del request.headers["authorization"]
        request.context["timestamp"] = own_headers["x-amz-date"]
        credentials = Credentials(keys.access_key, keys.secret_key, keys.session_token or None)
        signer = SigV4Auth(credentials, "bedrock", "eu-west-1")
        to_sign = signer.string_to_sign(request, signer.canonical_request(request))
        assert signer.signature(to_sign, request) in own_headers["authorization"]


def test_settings_take_keys_with_a_region() -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "AKID",
        "AWS_SECRET_ACCESS_KEY": "a-secret-0123456789",
        "AWS_DEFAULT_REGION": "us-gov-west-1",
    }
    settings = GatewaySettings.of_environment(environment)
    assert settings.aws == AwsKeys("AKID", "a-secret-0123456789", "us-gov-west-1")
    assert settings.address("bedrock", "/model/m/converse") == (
        "https://bedrock-runtime.us-gov-west-1.amazonaws.com/model/m/converse"
    )
    assert settings.configured == ("bedrock",)
    assert settings.reaches_models
    assert "AWS_ACCESS_KEY_ID is set, for us-gov-west-1" in [f.text for f in settings.describe()]
    assert "a-secret" not in repr(settings)
    for names in ((), ("AWS_ACCESS_KEY_ID",)):  # a region alone is no server of the user's
        variables = {name: environment[name] for name in ("AWS_DEFAULT_REGION", *names)}
        settings = GatewaySettings.of_environment(variables)
        assert (settings.reaches_models, settings.upstream("bedrock")) == (False, "")
    for region in ("", "us-east-1.evil.test/", "US-EAST-1", "x@y"):
        settings = GatewaySettings.of_environment({**environment, "AWS_DEFAULT_REGION": region})
        assert settings.aws is None
        assert settings.upstream("bedrock") == ""
