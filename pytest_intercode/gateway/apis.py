"""The APIs on the wire: routes, errors in each vendor's words, what is not served.

Pure. A refusal has the status that makes the clients of its route stop; with another one some of
them try again for minutes. It differs by route: with 400 the clients of responses stop, with 401
those of chat completions, and with 403 those of messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pytest_intercode.gateway.exchange import Api

__all__ = [
    *("ROUTES", "Route", "error_body", "error_message"),
    *("is_answer", "model_list", "objects", "parse_object", "stop_status"),
]

Vendor = Literal["openai", "anthropic"]


@dataclass(frozen=True)
class Route:
    """One thing that is served.

    Attributes:
        method: the HTTP method.
        path: the path at the upstream, below its address.
        vendor: whose API it is; empty for the models, which both have.
        api: the API that is metered; None for what costs nothing.
    """

    method: str
    path: str
    vendor: Vendor | Literal[""]
    api: Api | None = None


_SERVED = (
    Route("POST", "/v1/chat/completions", "openai", "chat"),
    Route("POST", "/v1/responses", "openai", "responses"),
    Route("POST", "/v1/messages", "anthropic", "messages"),
    Route("POST", "/v1/messages/count_tokens", "anthropic"),
    Route("GET", "/v1/models", ""),
)

# Some clients want a base URL with /v1 and some one without; either way they get there.
ROUTES: Mapping[tuple[str, str], Route] = {
    (route.method, path): route
    for route in _SERVED
    for path in (route.path, f"/v1{route.path}", route.path.removeprefix("/v1"))
}
"""What is served, by method and path."""

_STOP_STATUSES: Mapping[Api | None, int] = {
    "chat": 401,
    "responses": 400,
    "messages": 403,
    None: 403,
}
_OPENAI_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def stop_status(api: Api | None) -> int:
    """Return the status with which the clients of an API give up at once."""
    return _STOP_STATUSES[api]


def error_body(vendor: str, status: int, message: str, code: str) -> dict[str, Any]:
    """Return an error as a vendor words it."""
    if vendor == "anthropic":
        kind = _ANTHROPIC_TYPES.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def error_message(body: Mapping[str, Any] | None) -> str:
    """Return the message of an error's body, which is in different places."""
    error = (body or {}).get("error", body)
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail")
    return error if isinstance(error, str) else ""


def model_list(vendor: str, models: tuple[str, ...]) -> dict[str, Any]:
    """Return a list of models as a vendor writes it."""
    if vendor == "anthropic":
        began = "1970-01-01T00:00:00Z"
        data: list[dict[str, Any]] = [
            {"type": "model", "id": name, "display_name": name, "created_at": began}
            for name in models
        ]
        ends = {"first_id": models[0], "last_id": models[-1]}
        return {"data": data, "has_more": False, **ends}
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "gateway"} for name in models]
    return {"object": "list", "data": data}


def is_answer(api: Api | None, body: Mapping[str, Any]) -> bool:
    """Whether a body looks like an answer of an API."""
    keys: Mapping[Api, str] = {"chat": "choices", "responses": "output", "messages": "content"}
    return api is None or isinstance(body.get(keys[api]), list)


def parse_object(data: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for any other data."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of an API's list, and nothing of what is not a list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
