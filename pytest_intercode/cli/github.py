"""GitHub, as seen by a job of its Actions: the job's variables, and comments by the REST API.

https://docs.github.com/en/actions/reference/workflows-and-actions/variables
https://docs.github.com/en/rest/issues/comments
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pytest_intercode.core.text import clipped
from pytest_intercode.system.connections import failure

__all__ = ["GitHubError", "Job", "PullRequest"]

_API_VERSION = "2022-11-28"
_TIMEOUT = 30.0  # seconds without a byte from the server
_PAGE = 100  # comments in an answer, the API's maximum
_MAX_PAGES = 50
_MAX_ANSWER = 32 << 20  # bytes: more than a hundred comments of the largest size
_MAX_TRIES = 4  # of one request
_RETRY_INTERVAL = 2.0  # seconds before the second try, doubled for each further one
_MAX_INTERVAL = 60.0  # seconds; do not wait for a rate limit that lasts longer
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class GitHubError(Exception):
    """The API refused, or did not answer; the text says why, in one line."""


@dataclass(frozen=True)
class Job:
    """The values from the variables of a job; empty outside of a job.

    Attributes:
        repository: ``OWNER/NAME``.
        pull_request: the number of the pull request that the job's event is about.
        commit: the tested commit: for a pull request, its own commit, not that of the merge.
        run_url: the address of the run.
        source_url: the address of the repository's files at that commit.
        workspace: the folder of the repository.
        summary: the file of the job's summary.
        api_url: the address of the API.
        token: the token for the API.
    """

    repository: str
    pull_request: int | None
    commit: str
    run_url: str
    source_url: str
    workspace: Path
    summary: Path | None
    api_url: str
    token: str

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Job:
        """Read a job's variables and its event."""
        repository = variables.get("GITHUB_REPOSITORY", "")
        server = variables.get("GITHUB_SERVER_URL", "")
        event = _read_event(variables.get("GITHUB_EVENT_PATH", ""))
        pull_request = _mapping(event, "pull_request")
        commit = _mapping(pull_request, "head").get("sha") or variables.get("GITHUB_SHA", "")
        commit = commit if isinstance(commit, str) and _COMMIT.fullmatch(commit) else ""
        number = pull_request.get("number")
        address = f"{server}/{repository}" if server and repository else ""
        run_id = variables.get("GITHUB_RUN_ID", "")
        summary = variables.get("GITHUB_STEP_SUMMARY")
        return cls(
            repository=repository,
            pull_request=number if isinstance(number, int) else None,
            commit=commit,
            run_url=f"{address}/actions/runs/{run_id}" if address and run_id else "",
            source_url=f"{address}/blob/{commit}" if address and commit else "",
            workspace=Path(variables.get("GITHUB_WORKSPACE") or "."),
            summary=Path(summary) if summary else None,
            api_url=variables.get("GITHUB_API_URL") or "https://api.github.com",
            token=variables.get("GITHUB_TOKEN", ""),
        )


def _read_event(path: str) -> Mapping[str, Any]:
    try:
        event = json.loads(Path(path).read_bytes()) if path else {}
    except (OSError, ValueError):
        event = {}
    return event if isinstance(event, dict) else {}


def _mapping(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


class PullRequest:
    """The comments of a pull request.

    Args:
        api_url: the address of the API.
        repository: ``OWNER/NAME``.
        number: the number of the pull request.
        token: a token that may read and write comments.
    """

    def __init__(self, api_url: str, repository: str, number: int, token: str) -> None:
        self._repository = f"{api_url.rstrip('/')}/repos/{repository}"
        self._user = f"{api_url.rstrip('/')}/user"
        self._comments = f"{self._repository}/issues/{number}/comments"
        self._token = token
        # A redirection would send the token to another address.
        self._opener = build_opener(_NoRedirection)

    def keep_comment(self, text: str, first_line: str) -> str:
        """Edit our comment, or create it; return its address.

        Our comment begins with the line, and its author is a bot or the token's user. Anyone else
        may write a comment that begins with the line; such a comment is not changed.

        Raises:
            GitHubError: the token does not allow it, or the API does not answer.
        """
        body = {"body": text}
        for comment in self._list():
            if str(comment.get("body")).startswith(first_line) and self._is_ours(comment):
                address = f"{self._repository}/issues/comments/{comment.get('id')}"
                try:
                    return self._address(self._send("PATCH", address, body))
                except _NotThereError:
                    break  # it has been deleted since
        return self._address(self._send("POST", self._comments, body))

    def _list(self) -> Iterator[Mapping[str, Any]]:
        for page in range(1, _MAX_PAGES + 1):
            comments = self._send("GET", f"{self._comments}?per_page={_PAGE}&page={page}")
            if not isinstance(comments, list):
                raise GitHubError("the API's answer is not a list of comments")
            yield from (comment for comment in comments if isinstance(comment, dict))
            if len(comments) < _PAGE:
                return

    def _is_ours(self, comment: Mapping[str, Any]) -> bool:
        author = _mapping(comment, "user")
        if author.get("type") == "Bot":
            return True
        try:  # a job's token does not belong to a user, and may not ask
            user = self._send("GET", self._user)
        except GitHubError:
            return False
        return isinstance(user, dict) and author.get("id") == user.get("id") is not None

    @staticmethod
    def _address(comment: Any) -> str:
        return str(comment.get("html_url", "")) if isinstance(comment, dict) else ""

    def _send(self, method: str, address: str, body: Mapping[str, str] | None = None) -> Any:
        """Send a request, again if the API wants it later; return its answer."""
        for number in range(1, _MAX_TRIES + 1):
            try:
                return self._send_once(method, address, body)
            except _LaterError as error:
                interval = error.interval or _RETRY_INTERVAL * 2 ** (number - 1)
                if number == _MAX_TRIES or interval > _MAX_INTERVAL:
                    raise
                time.sleep(interval)
        raise AssertionError("the last try returns or raises")

    def _send_once(self, method: str, address: str, body: Mapping[str, str] | None) -> Any:
        request = Request(
            address,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                "User-Agent": "pytest-intercode",
                "X-GitHub-Api-Version": _API_VERSION,
            },
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as response:
                return json.loads(response.read(_MAX_ANSWER))
        except HTTPError as error:
            with error:
                raise _refusal(error, method) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = failure(error) or str(error) or type(error).__name__
            raise GitHubError(f"the API does not answer: {clipped(reason, 200)}") from None


class _NotThereError(GitHubError):
    """The requested object does not exist, or the token may not see it."""


class _LaterError(GitHubError):
    """The API accepts the request later.

    Args:
        reason: why.
        interval: after how many seconds; 0 if the API did not say.
    """

    def __init__(self, reason: str, interval: float) -> None:
        super().__init__(reason)
        self.interval = interval


class _NoRedirection(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None  # urllib then raises an error for the answer


def _refusal(error: HTTPError, method: str) -> GitHubError:
    """Return the error for an answer that refuses a request, with the API's own message."""
    try:
        message = str(json.loads(error.read(_MAX_ANSWER))["message"])
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        message = str(error.reason)
    reason = f"the API answers {error.code} to {method}: {clipped(message, 200)}"
    # https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
    limited = error.headers.get("x-ratelimit-remaining") == "0" or "rate limit" in message.lower()
    if error.code == 429 or (error.code == 403 and limited):
        return _LaterError(reason, _seconds_to_wait(error.headers))
    # Not for POST: a server that failed may have created the comment, which would then exist twice.
    if error.code >= 500 and method != "POST":
        return _LaterError(reason, 0.0)
    if error.code == 404:
        return _NotThereError(reason)
    if error.code == 403:
        return GitHubError(
            f"{reason}; the job needs `permissions: pull-requests: write`, which pull requests "
            "from forks do not get"
        )
    return GitHubError(reason)


def _seconds_to_wait(headers: Message) -> float:
    """Return how many seconds an answer asks to wait; 0 if it does not say."""
    try:
        if (seconds := headers.get("retry-after")) is not None:
            return max(0.0, float(seconds))
        reset = headers.get("x-ratelimit-reset")
        if reset is not None and headers.get("x-ratelimit-remaining") == "0":
            return max(0.0, float(reset) - time.time())
    except ValueError:
        pass
    return 0.0
