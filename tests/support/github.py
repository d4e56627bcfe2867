"""The part of GitHub's REST API that comments need, on this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["FakeGitHub", "serve_github"]

Answer = tuple[int, Mapping[str, str], Any]


class FakeGitHub:
    """Comments of pull request 7 of octo/cat, and what is to be answered instead.

    Attributes:
        url: where it listens.
        comments: what the pull request has.
        requests: the method and path of each request.
        answers: status, headers and body of the next answers to requests of a method, in place of
            what would be answered.
        user: the id of the user whose the token is; None for that of a job, which is no user's.
    """

    token = "ghs_secret"

    def __init__(self) -> None:
        self.url = ""
        self.comments: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.answers: dict[str, list[Answer]] = {}
        self.user: int | None = None

    def add(self, body: str, kind: str = "User", user: int = 1) -> dict[str, Any]:
        """Add a comment."""
        number = len(self.comments) + 100
        comment = {
            "id": number,
            "body": body,
            "user": {"id": user, "type": kind},
            "html_url": f"https://github.com/octo/cat/pull/7#issuecomment-{number}",
        }
        self.comments.append(comment)
        return comment

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> Answer:
        """Return what a request gets."""
        self.requests.append(f"{method} {path}")
        if headers.get("Authorization") != f"Bearer {self.token}":
            return 401, {}, {"message": "Bad credentials"}
        if self.answers.get(method):
            return self.answers[method].pop(0)
        address = urlsplit(path)
        if (method, address.path) == ("GET", "/user"):
            if self.user is None:
                return 403, {}, {"message": "Resource not accessible by integration"}
            return 200, {}, {"id": self.user}
        if address.path == "/repos/octo/cat/issues/7/comments":
            if method == "POST":
                return 201, {}, self.add(body["body"], "Bot" if self.user is None else "User", 9)
            query = parse_qs(address.query)
            size, page = int(query["per_page"][0]), int(query["page"][0])
            return 200, {}, self.comments[(page - 1) * size : page * size]
        match = re.fullmatch(r"/repos/octo/cat/issues/comments/(\d+)", address.path)
        for comment in self.comments:
            if match and method == "PATCH" and comment["id"] == int(match[1]):
                comment["body"] = body["body"]
                return 200, {}, comment
        return 404, {}, {"message": "Not Found"}


@contextmanager
def serve_github() -> Iterator[FakeGitHub]:
    """Serve it until the context ends."""
    github = FakeGitHub()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            try:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, content = github.answer(
                    self.command, self.path, dict(self.headers), json.loads(body or b"null")
                )
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:  # the client has gone
                self.close_connection = True

        do_GET = do_POST = do_PATCH = handle_any

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False  # closing the server joins them
    github.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield github
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
