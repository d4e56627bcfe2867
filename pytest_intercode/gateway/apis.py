"""The APIs on the wire: the routes that are served, and errors in each vendor's format.

Pure. A refusal has the status that makes the clients of its route stop; with another status, some
of them retry for minutes. It differs by route: the clients of responses stop at 400, those of chat
completions at 401, and those of messages, Gemini and Bedrock at 403.

If a path names the model and determines whether the answer is streamed, both are added to the
parsed body as ``model`` and ``stream``, so that requests of all APIs are checked, kept, priced and
recorded in the same way. :meth:`Target.upstream_body` removes them again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs, quote, unquote

from pytest_intercode.gateway.exchange import Api
from pytest_intercode.gateway.vendors import VENDORS, VendorName

__all__ = [
    *(
        "AMAZON_ERRORS",
        "ROUTES",
        "Fields",
        "FramingName",
        "Route",
        "Target",
        "error_body",
        "error_message",
        "find_target",
    ),
    *("is_answer", "is_blocked", "model_list", "objects", "parse_object", "stop_status"),
]

FramingName: TypeAlias = Literal["events", "array", "frames", "chunks"]
"""How a stream is sent to a client: server-sent events, a JSON array, or AWS's frames."""

Fields: TypeAlias = Api | Literal["invoke"]
"""Which fields a request may have; ``invoke`` means those of messages in Bedrock's form."""

_MODEL = re.compile(r"[\w.:@-]{1,200}", re.ASCII)
_PLACEHOLDERS = {
    "{project}": "[^/?]+",
    "{location}": "[^/?]+",
    "{version}": "(?P<version>v1|v1alpha|v1beta|v1beta1)",
    "{model}": "(?P<model>[^/?]+?)",
}
_API_VERSION = re.compile(r"\d{4}-\d\d-\d\d(-preview)?|preview|latest|v1")


@dataclass(frozen=True)
class Route:
    """A route that is served.

    Attributes:
        method: the HTTP method.
        path: the path at the upstream, below its address; ``{model}`` and ``{version}`` are filled
            in from the client's path.
        vendor: the vendor whose API it is; empty for the list of models, which several have.
        api: the API that is metered; None for requests that cost nothing.
        fields: which fields a request may have: those of an API, or ``invoke``.
        streams: whether an answer is streamed; None if the body determines this.
    """

    method: str
    path: str
    vendor: VendorName | Literal[""]
    api: Api | None = None
    fields: Fields = "messages"
    streams: bool | None = None

    @property
    def names_model(self) -> bool:
        """Whether the model is in the path."""
        return "{model}" in self.path


@dataclass(frozen=True)
class Target:
    """The target of one request.

    Attributes:
        route: the route.
        values: the client's values for the placeholders of the path.
        query: the part of the client's query that is passed on.
        framing: how a stream is sent to the client.
    """

    route: Route
    values: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    framing: FramingName = "events"

    def path(self, account: Mapping[str, str]) -> str:
        """Return the path at the upstream.

        Args:
            account: the Vertex AI account whose models are used; a client's own values for it are
                ignored.
        """
        values = {**self.values, **account}
        return self.route.path.format_map({key: quote(v, "") for key, v in values.items()})

    def body(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return a client's body with the model and the streaming that its path determines."""
        body = {**content}
        if self.route.names_model:
            body["model"] = self.values["model"]
        if self.route.streams is not None:
            body["stream"] = self.route.streams
        return body

    def upstream_body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body to send, without the fields that the path determines."""
        omitted = {"model"} if self.route.names_model else set()
        omitted |= {"stream"} if self.route.streams is not None else set()
        return {key: value for key, value in body.items() if key not in omitted}


_GEMINI = "/{version}/models/{model}"
_AZURE = "/openai/deployments/{model}"
_BEDROCK = "/model/{model}"
_ACCOUNT = "/projects/{project}/locations/{location}"
_VERTEX = f"/{{version}}{_ACCOUNT}/publishers"
_GOOGLE, _ANTHROPIC = f"{_VERTEX}/google/models/{{model}}", f"{_VERTEX}/anthropic/models/{{model}}"
_SERVED = (
    Route("POST", "/v1/chat/completions", "openai", "chat", "chat"),
    Route("POST", "/v1/responses", "openai", "responses", "responses"),
    Route("POST", "/v1/messages", "anthropic", "messages"),
    Route("POST", "/v1/messages/count_tokens", "anthropic"),
    Route("GET", "/v1/models", ""),
    Route("POST", f"{_GEMINI}:generateContent", "google", "gemini", "gemini", streams=False),
    Route("POST", f"{_GEMINI}:streamGenerateContent", "google", "gemini", "gemini", streams=True),
    Route("POST", f"{_GEMINI}:countTokens", "google", None, "gemini"),
    Route("GET", "/v1beta/models", "google"),
    Route("POST", f"{_AZURE}/chat/completions", "azure", "chat", "chat"),
    Route("POST", "/openai/v1/chat/completions", "azure", "chat", "chat"),
    Route("POST", "/openai/responses", "azure", "responses", "responses"),
    Route("POST", "/openai/v1/responses", "azure", "responses", "responses"),
    Route("GET", "/openai/v1/models", "azure"),
    Route("POST", f"{_BEDROCK}/converse", "bedrock", "converse", "converse", streams=False),
    Route("POST", f"{_BEDROCK}/converse-stream", "bedrock", "converse", "converse", streams=True),
    Route("POST", f"{_BEDROCK}/invoke", "bedrock", "messages", "invoke", streams=False),
    Route(
        *("POST", f"{_BEDROCK}/invoke-with-response-stream", "bedrock", "messages", "invoke"),
        streams=True,
    ),
    Route("POST", f"{_GOOGLE}:generateContent", "vertex", "gemini", "gemini", streams=False),
    Route("POST", f"{_GOOGLE}:streamGenerateContent", "vertex", "gemini", "gemini", streams=True),
    Route("POST", f"{_GOOGLE}:countTokens", "vertex", None, "gemini"),
    Route("POST", f"{_ANTHROPIC}:rawPredict", "vertex", "messages", "invoke"),
    Route("POST", f"{_ANTHROPIC}:streamRawPredict", "vertex", "messages", "invoke"),
)


def _paths(route: Route) -> list[str]:
    """Return the paths of a route: some clients expect /v1 in the base URL, and some do not."""
    if route.path.startswith("/v1/"):
        return [route.path, f"/v1{route.path}", route.path.removeprefix("/v1")]
    # A client of Vertex AI with a key instead of a login does not name a project.
    return [*dict.fromkeys((route.path, route.path.replace(_ACCOUNT, "")))]


ROUTES: Mapping[tuple[str, str], Route] = {
    (route.method, path): route for route in _SERVED for path in _paths(route)
}
"""The served routes, by method and path; a path may have placeholders."""


def _compile(path: str) -> re.Pattern[str]:
    pattern = re.escape(path)
    for placeholder, inner in _PLACEHOLDERS.items():
        pattern = pattern.replace(re.escape(placeholder), inner)
    return re.compile(pattern)


_PATTERNS = [(key[0], _compile(key[1]), route) for key, route in ROUTES.items() if "{" in key[1]]

_STOP_STATUSES: Mapping[Api | None, int] = {
    "chat": 401,
    "responses": 400,
    "messages": 403,
    "gemini": 403,
    "converse": 403,
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
_GOOGLE_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    504: "DEADLINE_EXCEEDED",
}


AMAZON_ERRORS: Mapping[int, str] = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    413: "ValidationException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}
"""AWS's names of errors, which are sent in a header."""


def find_target(method: str, path: str, query: str = "") -> Target | None:
    """Return the target of a request; None if it is not served.

    Args:
        method: the HTTP method.
        path: the path as the client sent it.
        query: the query, without ``?``.
    """
    route, values = ROUTES.get((method, path)), dict[str, str]()
    if route is None:
        for its_method, pattern, candidate in _PATTERNS:
            match = pattern.fullmatch(path) if its_method == method else None
            if match is not None:
                route = candidate
                values = {name: unquote(value) for name, value in match.groupdict().items()}
                break
        if route is None or not _MODEL.fullmatch(values.get("model", "")):
            return None
    elif "{" in path:  # a literal placeholder instead of a name
        return None
    return Target(route, values, _passed_query(route, query), _framing(route, query))


def _passed_query(route: Route, query: str) -> str:
    """Return the part of a client's query to pass on: known parameters, in a uniform form."""
    if route.vendor == "anthropic" and query == "beta=true":
        return query
    if route.vendor in ("google", "vertex") and route.streams:
        return "alt=sse"  # whatever the client asks for, so that only one form must be parsed
    if route.vendor == "azure":
        versions = parse_qs(query).get("api-version", [""])
        return f"api-version={versions[0]}" if _API_VERSION.fullmatch(versions[0]) else ""
    return ""


def _framing(route: Route, query: str) -> FramingName:
    of_google = route.vendor in ("google", "vertex")
    if of_google and route.streams and "sse" not in parse_qs(query).get("alt", []):
        return "array"
    if route.vendor == "bedrock":
        return "frames" if route.api == "converse" else "chunks"
    return "events"


def stop_status(api: Api | None) -> int:
    """Return the status at which the clients of an API give up immediately."""
    return _STOP_STATUSES[api]


def error_body(vendor: str, status: int, message: str, code: str) -> dict[str, Any]:
    """Return an error in a vendor's format."""
    words = VENDORS[vendor].words
    if words == "anthropic":
        kind = _ANTHROPIC_TYPES.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    if words == "google":
        kind = _GOOGLE_STATUSES.get(status, "INTERNAL" if status < 502 else "UNAVAILABLE")
        return {"error": {"code": status, "message": message, "status": kind}}
    if words == "amazon":
        return {"message": message}
    kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def error_message(body: Mapping[str, Any] | None) -> str:
    """Return the message in an error's body; its place differs between vendors."""
    error = (body or {}).get("error", body)
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail")
    return error if isinstance(error, str) else ""


def model_list(vendor: str, models: tuple[str, ...]) -> dict[str, Any]:
    """Return a list of models in a vendor's format."""
    words = VENDORS[vendor].words
    if words == "google":
        methods = ["generateContent", "countTokens"]
        return {
            "models": [
                {"name": f"models/{name}", "supportedGenerationMethods": methods} for name in models
            ]
        }
    if words == "anthropic":
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
    if api == "gemini" and body.keys() & {"promptFeedback", "usageMetadata"}:
        return True  # it may lack candidates: a blocked prompt, or all tokens used for thoughts
    if api == "gemini":
        return isinstance(body.get("candidates"), list)
    if api == "converse":
        return isinstance(body.get("output"), dict)
    keys: Mapping[Api, str] = {"chat": "choices", "responses": "output", "messages": "content"}
    return api is None or isinstance(body.get(keys[api]), list)


def is_blocked(body: Mapping[str, Any]) -> bool:
    """Whether a Gemini answer reports a blocked prompt, so that it has no candidate."""
    feedback = body.get("promptFeedback")
    return isinstance(feedback, dict) and bool(feedback.get("blockReason"))


def parse_object(data: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for any other data."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects in an API's list; empty if the value is not a list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
