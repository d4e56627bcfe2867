"""A session: the access of one episode to the gateway, and the record of its use."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pytest_intercode.core.text import one_line
from pytest_intercode.core.tokens import AnswerTokens
from pytest_intercode.errors import AgentError, BudgetExhausted
from pytest_intercode.gateway.apis import objects
from pytest_intercode.gateway.exchange import Exchange
from pytest_intercode.gateway.recording import Recorder, Replayer
from pytest_intercode.gateway.trajectory import count_calls
from pytest_intercode.system.connections import without_proxy

__all__ = ["HIDDEN", "KeepTokens", "Session"]

KeepTokens: TypeAlias = Callable[[str, Mapping[str, Any], AnswerTokens], int]
"""Keeps the tokens of a request: takes the model, the sent body, and the answer's tokens; returns
the number of the request."""

HIDDEN = (
    *("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "CLAUDE_CODE_OAUTH_TOKEN"),
    *("OPENAI_ORG_ID", "OPENAI_ORGANIZATION", "OPENAI_PROJECT_ID", "CODEX_API_KEY"),
    *("GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"),  # with these a client needs a login
    *("AZURE_OPENAI_AD_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"),
)
"""Variables with which a client would bypass the gateway, or use other keys."""

_RECOVERY_TIMEOUT = 10.0  # seconds in which a server that cannot be reached may recover
_MAX_REFUSALS = 100  # lines that are kept
_MAX_REFUSAL_LENGTH = 300  # characters
_MAX_KEPT_SIZE = 128 * 1024 * 1024  # approximate bytes of distinct messages that a session keeps
_PART_SIZE = 60  # bytes that a part of a message takes in memory, in addition to its text
_LISTS = ("messages", "input", "tools", "system", "contents")


class Session:
    """One episode's access to models; created by :meth:`Gateway.open`, and thread-safe.

    Attributes:
        token: the token that the client sends instead of a key; it selects the session.
        failure: why the episode cannot be metered or replayed, in one line; empty if it can.
        exhausted: which budget is used up; empty if none is.
        misconfiguration: why the run's settings and its server do not fit together, in one line,
            which is not the agent's fault; empty if they do.
        keep: keeps the tokens of each answer; None if they are not requested.
    """

    def __init__(
        self,
        key: str,
        port: int,
        *,
        spend: Callable[..., None],
        refused: Callable[[], str],
        recorder: Recorder | None,
        replayer: Replayer | None,
        close: Callable[[Session], None],
        check: Callable[[], str] = lambda: "",
        masked: Callable[[], tuple[str, ...]] = tuple,
        signs: bool = False,
        keep: KeepTokens | None = None,
    ) -> None:
        self.key = key
        self.token = f"sk-intercode-{secrets.token_urlsafe(32)}"
        self.failure = ""
        self.exhausted = ""
        self.misconfiguration = ""
        self.recorder = recorder
        self.replayer = replayer
        self.keep = keep
        self._port = port
        self._spend = spend
        self._refused = refused
        self._close = close
        self._check = check
        self._obstacles = 0
        self._first_obstacle = 0.0
        self._served = False
        self._has_tokens = False
        self._masked = masked
        self._signs = signs or replayer is not None
        self._lock = threading.Lock()
        self._request_count = 0
        self._exchanges: dict[int, Exchange] = {}
        self._turns = 0
        self._answers: set[str] = set()
        self._refusals: list[str] = []
        self._more_refusals = 0
        self._end_reason = ""
        self._kept_last = False
        self._kept_parts: dict[bytes, Any] = {}
        self._size = 0

    # -- for the caller that starts the agent

    def url(self, api: str) -> str:
        """Return the base URL for clients on this machine.

        Args:
            api: ``openai``, whose URL ends in ``/v1``, or another API, whose URL does not.
        """
        base = f"http://127.0.0.1:{self._port}"
        return f"{base}/v1" if api == "openai" else base

    def variables(self, base: str | None = None) -> dict[str, str]:
        """Return the environment variables that direct clients to the gateway.

        Args:
            base: the gateway's address as a sandbox sees it, ``http://127.0.0.1:PORT``; None for
                a program on this machine, which is also told to bypass the machine's proxy.
        """
        root = (base or self.url("anthropic")).rstrip("/")
        return {
            "OPENAI_BASE_URL": f"{root}/v1",
            "OPENAI_API_BASE": f"{root}/v1",
            "OPENAI_API_KEY": self.token,
            "ANTHROPIC_BASE_URL": root,
            "ANTHROPIC_API_KEY": self.token,
            "GOOGLE_GEMINI_BASE_URL": root,
            "GEMINI_API_KEY": self.token,
            "AZURE_OPENAI_ENDPOINT": root,
            "AZURE_OPENAI_API_KEY": self.token,
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": root,
            "ANTHROPIC_BEDROCK_BASE_URL": root,
            "GOOGLE_VERTEX_BASE_URL": root,
            "ANTHROPIC_VERTEX_BASE_URL": f"{root}/v1",
            "AZURE_API_BASE": root,  # LiteLLM's name
            "AZURE_API_KEY": self.token,
            **(self._aws_variables() if base or self._signs else {}),
            **({} if base else without_proxy()),
        }

    def _aws_variables(self) -> dict[str, str]:
        """Return keys with which Bedrock clients sign: they send a bearer token only over TLS."""
        return {"AWS_ACCESS_KEY_ID": self.token, "AWS_SECRET_ACCESS_KEY": self.token}

    def hidden(self, environment: Mapping[str, str]) -> dict[str, None]:
        """Return the variables that a program on this machine must not inherit.

        Args:
            environment: the variables that it would inherit. The result also includes all of these
                that contain a real key.
        """
        holding = (
            name
            for name, value in environment.items()
            if any(key in value for key in self._masked())
        )
        names = [*HIDDEN, *holding]
        return dict.fromkeys(name for name in names if name not in self.variables())

    @property
    def exchanges(self) -> list[Exchange]:
        """The finished exchanges, in the order of their requests.

        The first request that was refused for a budget is among them, without an answer.
        """
        with self._lock:
            return [exchange for _, exchange in sorted(self._exchanges.items())]

    @property
    def turns(self) -> int:
        """The number of tool calls in the answers so far."""
        with self._lock:
            return self._turns

    @property
    def refusals(self) -> list[str]:
        """The first hundred refusals and failures, each in one line."""
        with self._lock:
            count = self._more_refusals
            return [*self._refusals, *([f"... and {count} more"] if count else [])]

    @property
    def answers(self) -> frozenset[str]:
        """The ids of the answers so far, and of the items in them."""
        with self._lock:
            return frozenset(self._answers)

    def outage(self) -> str:
        """Return why no request of the episode could reach a model; empty if it may be the agent.

        There is an outage if every request failed to connect or had its key refused, and if the
        gateway's own request, which contains nothing from the agent, then also fails at every
        configured server. An answer with any other status shows that a server works, and may be due
        to what the agent sent. Blocks for the gateway's own request.
        """
        if self._served or not self._obstacles:
            return ""
        return self._check()

    def close(self) -> None:
        """End the session: cancel and meter running requests, and refuse later ones."""
        self._close(self)

    # -- for the server

    def begin(self) -> int:
        """Count a request, and return its number."""
        with self._lock:
            self._request_count += 1
            return self._request_count

    def record_obstacle(self, line: str) -> None:
        """Note that a request did not reach a model, for reasons unrelated to its content.

        Clients retry for minutes, so after ten seconds of this, no more requests are served.
        """
        self._first_obstacle = self._first_obstacle or time.monotonic()
        self._obstacles += 1
        elapsed = time.monotonic() - self._first_obstacle
        if not self._served and self._obstacles > 2 and elapsed > _RECOVERY_TIMEOUT:
            self.end(line)

    def record_answer(self) -> None:
        """Note that a server has answered a request of the session."""
        self._served = True

    def refusal_reason(self) -> str:
        """Return why no more requests are served; empty if they are."""
        if not self._end_reason:
            try:
                return self._refused()
            except Exception as error:  # the caller's function failed; serve no request then
                return f"the episode cannot go on: {type(error).__name__}"
        return self._end_reason

    def end(self, reason: str) -> None:
        """Serve no more requests; later calls do not change the reason."""
        self._end_reason = self._end_reason or reason

    def fail(self, line: str) -> None:
        """Serve no more requests, as the episode no longer gives a valid result for the agent."""
        self.failure = self.failure or one_line(line)
        self.end(self.failure)
        self.note(self.failure)

    def note(self, line: str) -> None:
        """Keep a line about a refusal or a failure."""
        line = one_line(self.mask(line))
        if len(line) > _MAX_REFUSAL_LENGTH:
            line = f"{line[:_MAX_REFUSAL_LENGTH]}..."
        with self._lock:
            if line in self._refusals:
                return
            if len(self._refusals) < _MAX_REFUSALS:
                self._refusals.append(line)
            else:
                self._more_refusals += 1

    def mask(self, text: str) -> str:
        """Return a text without keys and without the session's token."""
        for secret in (*self._masked(), self.token):
            text = text.replace(secret, "***")
        return text

    def check_tokens(self, tokens: AnswerTokens, server: str) -> None:
        """End the session if its first answer lacks the token ids that the server was asked for.

        Later answers may lack them because of the agent's request.

        Args:
            tokens: the tokens of an answer.
            server: the server's name and address.
        """
        if tokens.problem and not self._has_tokens:
            self.misconfiguration = (
                f"{server} was asked for token ids (docs/tokens.md): {tokens.problem}"
            )
            self.end(self.misconfiguration)
            self.note(self.misconfiguration)
        self._has_tokens = True

    def charge(self, exchange: Exchange) -> None:
        """Write an exchange's tokens to the ledger; end the session if a budget is used up.

        Blocks, as the ledger may be a file that several processes share.
        """
        if not exchange.usage.tokens:
            return
        try:
            self._spend(**vars(exchange.usage))
        except BudgetExhausted as error:
            if not self._end_reason:
                self.exhausted = str(error)
            self.end(str(error))
        except AgentError as error:
            self.fail(f"the model {exchange.model!r:.60}: {error}")

    def claim_last(self) -> bool:
        """Return whether this is the first refused request, the only one that is kept."""
        with self._lock:
            was_kept, self._kept_last = self._kept_last, True
        return not was_kept

    def add(self, number: int, exchange: Exchange) -> None:
        """Keep a finished exchange."""
        answered = [exchange.answer, *objects(exchange.answer.get("output"))]
        ids = {part["id"] for part in answered if isinstance(part.get("id"), str)}
        with self._lock:
            self._exchanges[number] = exchange
            self._turns += count_calls(exchange)
            self._answers |= ids

    def deduplicate(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request's body for keeping, which shares equal parts with other requests.

        Each request of an agent repeats the whole conversation.
        """
        body: dict[str, Any] = {}
        for key, value in request.items():
            if key in _LISTS and isinstance(value, list):
                parts = [self._share(part) for part in value]
                if parts.count(None) > value.count(None):  # a part may itself be null
                    body["not_kept"] = True
                    continue
                body[key] = parts
            else:
                body[key] = self._share(value)
        return body

    def _share(self, part: Any) -> Any:
        if part is None or isinstance(part, (bool, int, float)):
            return part
        data = json.dumps(part).encode("ascii")
        key = hashlib.blake2b(data, digest_size=16).digest()
        with self._lock:
            if key in self._kept_parts:
                return self._kept_parts[key]
            size = len(data) + _PART_SIZE * sum(map(data.count, (b",", b"[", b"{")))
            if self._size + size > _MAX_KEPT_SIZE:
                return None
            self._size += size
            return self._kept_parts.setdefault(key, part)
