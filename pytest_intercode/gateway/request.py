"""A client's request: its token, its body, whether it may be served, and errors in its format.

A body is parsed here and serialized again for the real server, so that it can mean only what was
checked.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Container, Mapping
from typing import Any

from aiohttp import web

from pytest_intercode.gateway.apis import AMAZON_ERRORS, Route, Target, error_body
from pytest_intercode.gateway.fields import check_fields
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.gateway.shapes import Limits, NotAllowed
from pytest_intercode.system.nesting import MAX_DEPTH, is_too_deep

__all__ = [
    *("MAX_BODY_SIZE", "RefusedRequest", "check_body", "digest_of", "error_answer"),
    *("parse_body", "read_body", "tokens_of", "vendor_of", "write_body"),
]

MAX_BODY_SIZE = 50 * 1024 * 1024
"""The most bytes that a request's body may have."""

_MAX_PARTS = 2_000_000  # characters that can start a part of a body; each part takes memory
_BODY_TIMEOUT = 60.0  # seconds that a body may pause
_SIGNED = re.compile(r"\s*Credential=([^/,\s]+)/")
_KEY_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")
_NAME = re.compile(r"[\w.:-]{1,60}", re.ASCII)  # a name that can be the value of an option


class RefusedRequest(Exception):
    """A request is not served.

    Args:
        status: the HTTP status.
        message: the message for the client.
        code: the error code, for programs.
        note: whether to note it in the episode's log.
    """

    def __init__(self, status: int, message: str, code: str, *, note: bool = True) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.note = status, message, code, note


def digest_of(token: str) -> bytes:
    """Return the digest by which a token is looked up, so that lookups leak no timing about it."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def tokens_of(request: web.BaseRequest) -> list[bytes]:
    """Return the digests of a request's tokens, from all headers that clients use for them."""
    tokens = [request.headers.get(name, "") for name in _KEY_HEADERS]
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        tokens.append(bearer.strip())
    elif match := _SIGNED.match(bearer):  # the token is the client's access key id
        tokens.append(match[1])
    return [digest_of(token) for token in tokens if token]


def vendor_of(request: web.BaseRequest, route: Route | None) -> str:
    """Return the vendor whose client sent a request."""
    if route is not None and route.vendor:
        return route.vendor
    headers = request.headers
    if "x-goog-api-key" in headers or request.raw_path.startswith("/v1beta/"):
        return "google"
    anthropic = "x-api-key" in headers or "anthropic-version" in headers
    return "anthropic" if anthropic or "/messages" in request.raw_path else "openai"


async def read_body(request: web.BaseRequest) -> bytes:
    """Return the body of a request."""
    too_large = RefusedRequest(413, "a request may have 50 MiB", "request_too_large")
    if (request.content_length or 0) > MAX_BODY_SIZE:
        raise too_large
    data = bytearray()
    try:
        while piece := await asyncio.wait_for(request.content.readany(), _BODY_TIMEOUT):
            data += piece
            if len(data) > MAX_BODY_SIZE:
                raise too_large
    except asyncio.TimeoutError:
        raise RefusedRequest(408, "the request's body did not come", "timeout") from None
    except RefusedRequest:
        raise
    except Exception as error:  # the body is not encoded as its headers say
        raise RefusedRequest(
            400, f"the request's body cannot be read: {type(error).__name__}", "invalid_request"
        ) from None
    return bytes(data)


def parse_body(data: bytes) -> dict[str, Any]:
    """Parse the body of a request."""
    # Check this before parsing, as it is the parsed objects that take memory.
    if sum(map(data.count, (b",", b"[", b"{"))) > _MAX_PARTS:
        raise RefusedRequest(413, "the request's body has too many parts", "request_too_large")

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    too_deep = RefusedRequest(
        400, f"the request's body is nested more than {MAX_DEPTH} levels deep", "invalid_request"
    )
    try:
        body = json.loads(data.decode("utf-8"), parse_constant=refuse)
    except ValueError as error:
        raise RefusedRequest(
            400, f"the request's body is not JSON: {error!s:.100}", "invalid_request"
        ) from None
    except RecursionError:
        raise too_deep from None
    if is_too_deep(body):
        raise too_deep
    if not isinstance(body, dict):
        raise RefusedRequest(400, "the request's body is not a JSON object", "invalid_request")
    return body


def write_body(body: Mapping[str, Any]) -> bytes:
    """Serialize a body for sending, so that it can mean only what was checked."""
    try:
        text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):  # ValueError: a number that was parsed as infinity
        raise RefusedRequest(
            400, "the request's body cannot be sent as JSON", "invalid_request"
        ) from None
    return text.encode("ascii")


def check_body(
    settings: GatewaySettings, target: Target, body: Mapping[str, Any], answers: Container[str]
) -> None:
    """Refuse a request that asks for something that is not allowed.

    Args:
        settings: the gateway's settings.
        target: the target of the request.
        body: the parsed body, with the fields that the path determines.
        answers: the ids of answers, and of parts of them, in the same episode.
    """
    route = target.route
    if route.method != "POST":
        return
    if (
        route.vendor == "bedrock"
        and route.fields == "invoke"
        and "anthropic." not in str(body.get("model"))
    ):
        message = "InvokeModel is served for Anthropic's models; use Converse for others"
        raise RefusedRequest(400, message, "not_allowed")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise RefusedRequest(400, "the request names no model", "invalid_request")
    if settings.models and model not in settings.models:
        names = ", ".join(settings.models)
        status = 400 if route.api == "responses" else 404
        raise RefusedRequest(
            status,
            f"the gateway serves no model {model!r:.80}; allowed: {names:.300}",
            "model_not_found",
        )
    limits = Limits(settings.allowed, settings.hosted_tools, answers)
    try:
        check_fields(route.fields, body, limits)
    except NotAllowed as error:
        name = error.name if _NAME.fullmatch(error.name) else ""
        options = [f"--intercode-gateway-allow={name}"] if name else []
        options += ["--intercode-gateway-hosted-tools"] if error.hosted else []
        allows = f"; {' or '.join(options)} allows it" if options else ""
        code = "hosted_tool" if error.hosted else "not_allowed"
        raise RefusedRequest(400, f"{error.message}{allows}", code) from None


def error_answer(
    request: web.BaseRequest,
    route: Route | None,
    status: int,
    message: str,
    code: str,
    final: bool = True,
) -> web.Response:
    """Return an error in the format of the client's vendor."""
    headers = {"x-should-retry": "false"} if final and status != 429 else {}
    vendor = vendor_of(request, route)
    if vendor == "bedrock":
        headers["x-amzn-errortype"] = AMAZON_ERRORS.get(status, "InternalServerException")
    body = error_body(vendor, status, message, code)
    return web.json_response(body, status=status, headers=headers)
