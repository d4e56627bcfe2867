"""A server that renews tokens, each refresh token once, as the vendors' do; and logins for it."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from tests.support.http_server import HttpServer

__all__ = ["TokenServer", "claude_login", "codex_login", "web_token"]

ACCESS, REFRESH = (
    "sk-ant-oat01-mark7f3-access-0123456789",
    "sk-ant-ort01-mark7f3-refresh-0123456789",
)
"""Tokens that no text but the login's file may have."""


class TokenServer(HttpServer):
    """The server; it runs between ``with`` and the end of the block.

    Args:
        status: what it answers instead of new tokens, if not 200.
        answer: fields of its answer that are others.

    Attributes:
        url: its address.
        requests: what it was sent.
        meanwhile: is called before it answers.
    """

    def __init__(self, status: int = 200, **answer: Any) -> None:
        self.requests: list[dict[str, Any]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                size = int(handler.headers["content-length"])
                data = handler.rfile.read(size).decode()
                if data.startswith("{"):
                    request = json.loads(data)
                else:  # Google's, whose assertion is good for an hour
                    request = {key: values[0] for key, values in parse_qs(data).items()}
                    request["refresh_token"] = str(time.monotonic_ns())
                with lock:
                    is_used = any(
                        r["refresh_token"] == request["refresh_token"] for r in self.requests
                    )
                    self.requests.append(request)
                    number = len(self.requests)
                self.meanwhile()
                code = 400 if is_used else status
                tokens: Mapping[str, Any] = {
                    "access_token": f"sk-ant-oat01-renewed-access-{number:010}",
                    "refresh_token": f"sk-ant-ort01-renewed-refresh-{number:010}",
                    "expires_in": 28800,
                    **answer,
                }
                body = tokens if code == 200 else {"error": "invalid_grant", "echo": request}
                reply = json.dumps(body).encode()
                handler.send_response(code)
                handler.send_header("content-length", str(len(reply)))
                handler.end_headers()
                handler.wfile.write(reply)

            def log_message(handler, format: str, *args: Any) -> None:
                pass

        super().__init__(Handler, "intercode-tokens")
        self.url = f"{self.address}/oauth/token"


def web_token(seconds: float, mark: str = "mark7f3") -> str:
    """Return a JSON web token that ends in so many seconds, with a signature that nobody checks."""
    claims = json.dumps({"exp": int(time.time() + seconds), "mark": mark}).encode()
    middle = base64.urlsafe_b64encode(claims).decode().rstrip("=")
    return f"eyJhbGciOiJub25lIn0.{middle}.c2lnbmF0dXJlLW9mLXRoZS10ZXN0"


def claude_login(folder: Path, seconds: float = 3600, **more: Any) -> Path:
    """Write a login of Claude Code whose token ends in so many seconds."""
    login = {
        "accessToken": ACCESS,
        "refreshToken": REFRESH,
        "expiresAt": int((time.time() + seconds) * 1000),
        "scopes": ["user:inference", "user:profile"],
        "subscriptionType": "max",
        **more,
    }
    return _write(folder / ".credentials.json", {"claudeAiOauth": login, "mcpOAuth": {"x": 1}})


def codex_login(folder: Path, seconds: float = 3600, **more: Any) -> Path:
    """Write a login of Codex whose token ends in so many seconds."""
    tokens = {
        "id_token": web_token(seconds, "id"),
        "access_token": web_token(seconds),
        "refresh_token": REFRESH,
        "account_id": "account-of-the-test",
    }
    timestamp = time.strftime("%Y-%m-%dT%H:%M:%S.123456789Z", time.gmtime())
    content = {"OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": timestamp, **more}
    return _write(folder / "auth.json", content)


def _write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    return path
