"""The APIs on the wire: routes, errors in each vendor's words, what is not served.

Pure. A refusal has the status that makes the clients of its route stop; with another one some of
them try again for minutes. It differs by route: with 400 the clients of responses stop, with 401
those of chat completions, and with 403 those of messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pytest_intercode.gateway.exchange import Api

__all__ = [
    *("ROUTES", "Route", "error_body", "error_message", "hosted_tools"),
    *("is_answer", "model_list", "objects", "stop_status"),
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

_STOP: Mapping[Api | None, int] = {"chat": 401, "responses": 400, "messages": 403, None: 403}
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
    return _STOP[api]


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
    if api is None:
        return True
    return isinstance(
        body.get({"chat": "choices", "responses": "output", "messages": "content"}[api]), list
    )


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list of an API's; what is none, and what is no list, is left out."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


# -- tools that run at the provider

# What the client runs itself. Of all others it is not known, so they are the provider's.
_OF_CLIENT = re.compile(
    r"function|custom|local_shell|apply_patch|namespace|tool_search|tool_search_tool_\w+"
    r"|(bash|text_editor|computer|memory)_\d+|computer_use_preview|computer"
)
_SEARCHING = re.compile(r"search-(preview|api)|deep-research|:online$")
_KEYS = {
    "web_search_options": "web_search",
    "plugins": "plugins",
    "mcp_servers": "mcp",
    "container": "container",
}
_SKIPPED = ("parameters", "input_schema", "arguments", "schema")  # descriptions, an agent's words
_MEDIA = ("image_url", "file_url", "video_url", "audio_url")
_DEEPEST = 60


def hosted_tools(body: Mapping[str, Any]) -> list[str]:
    """Return what of a request would leave the sandbox through the provider, by its names.

    These are tools that run at the provider, a model that searches by itself, and media that the
    provider fetches from an address.
    """
    found = [name for key, name in _KEYS.items() if body.get(key)]
    model = body.get("model")
    if isinstance(model, str) and _SEARCHING.search(model):
        found.append(f"model {model:.60}")
    found += _hosted_in(body, 0)
    return list(dict.fromkeys(found))


def _hosted_in(value: Any, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        yield "what is nested too deep"
    elif isinstance(value, list):
        for each in value:
            if isinstance(each, (dict, list)):
                yield from _hosted_in(each, depth + 1)
    elif isinstance(value, dict):
        if value.get("type") == "url" and _is_remote(value.get("url")):
            yield "media from an address"
        for key, inner in value.items():
            if key == "tools" and isinstance(inner, list):
                yield from filter(None, map(_hosted, inner))
            if key in _MEDIA and _is_remote(inner):
                yield "media from an address"
            if key in _SKIPPED or (key == "input" and isinstance(inner, dict)):
                continue
            if isinstance(inner, (dict, list)):
                yield from _hosted_in(inner, depth + 1)


def _hosted(tool: Any) -> str:
    """Return the name of a tool that the client does not run; else nothing."""
    if not isinstance(tool, dict):
        return ""
    kind = tool.get("type")
    if kind is None:
        return ""
    if kind == "shell":
        environment = tool.get("environment")
        local = not environment or (
            isinstance(environment, dict) and environment.get("type") == "local"
        )
        return "" if local else "shell"
    known = isinstance(kind, str) and _OF_CLIENT.fullmatch(kind)
    return "" if known else f"{kind!s:.60}"


def _is_remote(value: Any) -> bool:
    if isinstance(value, dict):
        value = value.get("url")
    return isinstance(value, str) and not value.lstrip().lower().startswith("data:")
