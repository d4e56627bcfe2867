"""The client: one HTTP client for a run, a caller for each episode, and one-line errors.

Requests are made on one thread with an event loop for all episodes. So an episode whose time is up
can cancel its own request at any moment, in the middle of a body or of a pause before a retry,
while the requests of other episodes continue. Answers are not streamed: a server that stops in the
middle of an answer is noticed by the same timeout as one that never starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_intercode.agents.chat.arguments import ChatArguments
from pytest_intercode.core.text import replace_surrogates
from pytest_intercode.errors import AgentError, BudgetExhausted
from pytest_intercode.system.connections import LOOPBACK_HOSTS, causes, failure
from pytest_intercode.system.loop_thread import LoopThread

if TYPE_CHECKING:
    import openai

__all__ = ["Answer", "Call", "Caller", "ChatClient", "RequestRefused"]

_NO_KEY = "none"  # the client requires a key even for servers that need none
_THREAD_NAME = "intercode-chat"  # threads with this name are not reported as left behind
_CONNECT_TIMEOUT = 20.0  # seconds for a connection
_CLOSE_TIMEOUT = 5.0  # seconds for running requests to end
_MAX_MESSAGE_CHARACTERS = 500  # characters of a server's message
# Statuses by which a server refuses the content of a request, or cannot finish processing it.
_CONTENT_STATUSES = (400, 408, 413, 422)


class RequestRefused(AgentError):
    """The server answered with an error, or was silent for too long.

    Attributes:
        status: the HTTP status; 408 (request timeout) for a server that was silent.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    @property
    def may_be_for_content(self) -> bool:
        """Whether the cause may be the request's texts, not the server, its limits or the key."""
        return self.status in _CONTENT_STATUSES


@dataclass(frozen=True)
class Call:
    """A tool call as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """The answer of a model.

    Attributes:
        text: its message.
        calls: its tool calls.
        cut_off: whether it ends because a token limit was reached.
        reasoning: its reasoning, if the server reports it.
        input_tokens: tokens of the request; None if the server does not report them.
        output_tokens: tokens of the answer; None if the server does not report them.
        cached_tokens: tokens of the request that the server read from a cache.
        cache_write_tokens: tokens of the request that it wrote to a cache.
        reasoning_tokens: tokens of the answer that are not visible in it.
    """

    text: str
    calls: tuple[Call, ...] = ()
    cut_off: bool = False
    reasoning: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


class ChatClient:
    """The client of a run; it imports openai when it is first used.

    Args:
        arguments: the server, the model and the parameters of requests.
    """

    def __init__(self, arguments: ChatArguments) -> None:
        self._arguments = arguments
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._api: openai.AsyncOpenAI | None = None
        self._closed = False
        self._reached = False  # whether the server has answered, even if with an error
        self._unreachable = False

    def start(self) -> None:
        """Prepare the client, so that this does not take an episode's time; may be called again.

        Raises:
            AgentError: the client does not accept its settings.
        """
        with self._lock:
            if self._thread is None and not self._closed:
                self._connect()
                self._thread = LoopThread(_THREAD_NAME)
                # The pool resolves host names.
                pool = ThreadPoolExecutor(4, thread_name_prefix=_THREAD_NAME)
                self._thread.loop.set_default_executor(pool)

    def begin(self, request: Mapping[str, Any]) -> Future[Answer | AgentError]:
        """Send a request; cancelling the future cancels it."""
        self.start()
        with self._lock:
            if self._thread is None:
                raise AgentError("the run is over: the chat client is closed")
            return self._thread.begin(self._ask(request))

    def close(self) -> None:
        """Cancel all requests and close the connections; may be called twice."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is None:
            return
        with contextlib.suppress(Exception):
            thread.begin(self._cancel_all()).result(_CLOSE_TIMEOUT)
        thread.stop(_CLOSE_TIMEOUT)

    def _connect(self) -> None:
        import openai

        arguments = self._arguments
        try:
            address = urlsplit(arguments.base_url or os.environ.get("OPENAI_BASE_URL") or "")
            http_client = None
            if address.hostname in LOOPBACK_HOSTS:
                # Do not use a proxy that the environment names. For HTTPS, it may also name trusted
                # certificate authorities, so it is still read.
                http_client = openai.DefaultAsyncHttpxClient(
                    trust_env=address.scheme == "https", mounts={"https://": None}
                )
            self._api = openai.AsyncOpenAI(
                api_key=arguments.api_key or os.environ.get("OPENAI_API_KEY") or _NO_KEY,
                base_url=arguments.base_url,
                timeout=openai.Timeout(
                    arguments.timeout, connect=min(arguments.timeout, _CONNECT_TIMEOUT)
                ),
                max_retries=arguments.retries,
                http_client=http_client,
            )
        except Exception as error:  # a bad environment variable or proxy setting
            raise AgentError(f"the openai client: {_to_one_line(str(error))}") from None

    async def _ask(self, request: Mapping[str, Any]) -> Answer | AgentError:
        """Return the answer or the error; asyncio would log one raised after a cancellation."""
        assert self._api is not None
        api = self._api
        if self._unreachable and not self._reached:
            api = api.with_options(max_retries=0)  # other episodes have waited long enough
        arguments = self._arguments
        create: Any = api.chat.completions.create  # Any: servers differ from what its types allow
        try:
            completion = await create(
                model=arguments.model,
                extra_body=dict(arguments.extra_body) or None,
                **arguments.sampling,
                **request,
            )
            self._reached = True
            return _read_answer(completion)
        except Exception as error:
            return self._describe_error(error)

    async def _cancel_all(self) -> None:
        assert self._api is not None
        # Exclude this task, which would wait for itself.
        current_task = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not current_task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._api.close()

    # -- errors

    def _describe_error(self, error: Exception) -> AgentError:
        """Return a one-line error, with the server's own message if there is one."""
        import openai

        assert self._api is not None
        server = f"the chat server {str(self._api.base_url).rstrip('/')}"
        attempts = _describe_attempts(error)
        if isinstance(error, AgentError):
            return AgentError(f"{server} {error}")
        if isinstance(error, openai.APIStatusError):
            self._reached = True
            message = _to_one_line(_find_message(error.body) or error.response.text)
            hint = ""
            if error.status_code == 401 and self._api.api_key == _NO_KEY:
                hint = " (no key was given: set OPENAI_API_KEY)"
            text = f"{server} answered {error.status_code}{attempts}: {message}{hint}"
            return RequestRefused(text, error.status_code)
        if isinstance(error, openai.APITimeoutError):
            seconds = self._arguments.timeout
            return RequestRefused(f"{server} was silent for {seconds:g} s{attempts}", 408)
        if isinstance(error, openai.APIConnectionError):
            self._unreachable = True
            return AgentError(f"{server} cannot be reached{attempts}: {_describe_cause(error)}")
        message = _to_one_line(str(error))
        return AgentError(f"{server} gave no chat completion: {type(error).__name__}: {message}")


class Caller:
    """Sends the requests of one episode."""

    def __init__(self, client: ChatClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._pending: Future[Answer | AgentError] | None = None
        self._aborted = False

    def ask(self, request: Mapping[str, Any]) -> Answer:
        """Send a request and wait for the answer.

        Raises:
            AgentError: the server refuses, or does not answer.
            BudgetExhausted: the episode is over.
        """
        with self._lock:
            if self._aborted:
                raise BudgetExhausted("the episode was stopped")
            pending = self._pending = self._client.begin(request)
        try:
            answer = pending.result()
        except CancelledError:
            raise BudgetExhausted("the episode was stopped") from None
        if isinstance(answer, AgentError):
            raise answer
        return answer

    def abort(self) -> None:
        """Cancel the running request, from any thread, and start no other."""
        # The lock keeps a request from starting in between; it is never held for long.
        with self._lock:
            self._aborted = True
            pending = self._pending
        if pending is not None:
            pending.cancel()


def _describe_attempts(error: Exception) -> str:
    """Return how often the client has tried, from the request header in which it counts."""
    request = getattr(error, "request", None)
    retries = request.headers.get("x-stainless-retry-count", "0") if request is not None else "0"
    return f" ({int(retries) + 1} tries)" if retries.isdecimal() and retries != "0" else ""


def _describe_cause(error: BaseException) -> str:
    """Return why a connection failed: the system's message, or the innermost exception's."""
    messages = [message for cause in causes(error) if (message := str(cause))]
    return _to_one_line(failure(error) or (messages[-1] if messages else type(error).__name__))


# -- answers


def _read_answer(completion: Any) -> Answer:
    """Read an answer, which servers do not always write as the API specifies.

    Raises:
        AgentError: it is not a chat completion.
    """
    choices = getattr(completion, "choices", None)
    if not choices or getattr(choices[0], "message", None) is None:
        body = completion.model_dump() if hasattr(completion, "model_dump") else completion
        description = _to_one_line(_find_message(body) or str(body))
        raise AgentError(f"gave no chat completion: {description}")
    message = choices[0].message
    calls = []
    for number, call in enumerate(getattr(message, "tool_calls", None) or (), 1):
        function = getattr(call, "function", None)
        name, arguments = getattr(function, "name", None), getattr(function, "arguments", None)
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments)
        calls.append(
            Call(
                str(call.id or f"call_{number}"),
                replace_surrogates(str(name or "")),
                replace_surrogates(arguments),
            )
        )
    usage = getattr(completion, "usage", None)
    thoughts = (getattr(message, key, None) for key in ("reasoning_content", "reasoning"))
    reasoning = next((thought for thought in thoughts if isinstance(thought, str)), "")
    input_tokens, output_tokens = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    input_details = getattr(usage, "prompt_tokens_details", None)
    output_details = getattr(usage, "completion_tokens_details", None)
    # A server may report a part that exceeds the whole, which the ledger would refuse.
    cached_tokens = min(_count(input_details, "cached_tokens") or 0, input_tokens or 0)
    text = getattr(message, "content", None)
    if isinstance(text, list):  # in parts
        text = "".join(part["text"] for part in text if isinstance(part.get("text"), str))
    return Answer(
        text=replace_surrogates(str(text or getattr(message, "refusal", None) or "")),
        calls=tuple(calls),
        cut_off=getattr(choices[0], "finish_reason", None) == "length",
        reasoning=replace_surrogates(reasoning),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached_tokens,
        cache_write_tokens=min(
            _count(input_details, "cache_write_tokens") or 0, (input_tokens or 0) - cached_tokens
        ),
        reasoning_tokens=min(_count(output_details, "reasoning_tokens") or 0, output_tokens or 0),
    )


def _count(usage: Any, key: str) -> int | None:
    value = getattr(usage, key, None)
    return value if isinstance(value, int) and value >= 0 else None


def _find_message(body: Any) -> str:
    """Return the message in the body of an error; its place differs between servers."""
    # For example {"error": {"message": ...}}; search no deeper, whatever a server sends.
    for _ in range(3):
        if not isinstance(body, Mapping):
            break
        body = next((body[key] for key in ("message", "error", "detail") if body.get(key)), "")
    return body if isinstance(body, str) else str(body or "")


def _to_one_line(text: str) -> str:
    """Return a text as one line, truncated."""
    text = " ".join(text.split())
    return text if len(text) <= _MAX_MESSAGE_CHARACTERS else f"{text[:_MAX_MESSAGE_CHARACTERS]}..."
