"""The client: one HTTP client for a run, a caller for each episode, and errors in one line.

Requests are made on one thread with an event loop, whichever episode's thread asks. So an episode
whose time is up can give up its own request at any moment, be it in the middle of a body or of a
pause before the next try, and the others' go on. Answers are not streamed: a server that falls
silent in the middle of one is noticed by the same time-out as one that does not begin.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_intercode.agents.chat.answers import Answer, one_line, read_answer, words_of
from pytest_intercode.agents.chat.arguments import ChatArguments
from pytest_intercode.errors import AgentError, BudgetExhausted

if TYPE_CHECKING:
    import openai

__all__ = ["Caller", "ChatClient"]

_NO_KEY = "none"  # the client wants one even for servers that do not
_THREADS = "intercode-chat"  # not to be taken for what an agent leaves behind
_CONNECT = 20.0  # seconds for a connection, as nothing that takes longer will come


class ChatClient:
    """One for the run; it imports the openai client when it is first started or asked.

    Args:
        arguments: the server, the model and how it is asked.
    """

    def __init__(self, arguments: ChatArguments) -> None:
        self._arguments = arguments
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._api: openai.AsyncOpenAI | None = None
        self._closed = False
        self._reached = False  # the server has answered, be it with an error
        self._unreachable = False

    def start(self) -> None:
        """Make ready, so that an episode's time is not spent on it; may be called again.

        Raises:
            AgentError: the client does not accept its settings.
        """
        with self._lock:
            if self._loop is None and not self._closed:
                self._start()

    def begin(self, request: Mapping[str, Any]) -> concurrent.futures.Future[Answer | AgentError]:
        """Send a request; the future is cancelled to give it up."""
        self.start()
        with self._lock:
            if self._loop is None:
                raise AgentError("the run is over: the chat client is closed")
            return asyncio.run_coroutine_threadsafe(self._ask(request), self._loop)

    def close(self) -> None:
        """Give up what is under way and end the connections; may be called twice."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._end(), loop).result(5.0)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(5.0)

    def _start(self) -> None:
        import openai

        arguments = self._arguments
        try:
            self._api = openai.AsyncOpenAI(
                api_key=arguments.api_key or os.environ.get("OPENAI_API_KEY") or _NO_KEY,
                base_url=arguments.base_url,
                timeout=openai.Timeout(arguments.timeout, connect=min(arguments.timeout, _CONNECT)),
                max_retries=arguments.retries,
            )
        except Exception as error:  # an environment variable of the client's, or a proxy
            raise AgentError(f"the openai client: {one_line(str(error))}") from None
        loop = self._loop = asyncio.new_event_loop()
        names = concurrent.futures.ThreadPoolExecutor(4, thread_name_prefix=_THREADS)
        loop.set_default_executor(names)  # looks addresses up

        def serve() -> None:
            try:
                loop.run_forever()
            finally:
                loop.close()

        self._thread = threading.Thread(target=serve, name=_THREADS, daemon=True)
        self._thread.start()

    async def _ask(self, request: Mapping[str, Any]) -> Answer | AgentError:
        """Return what comes; an error is not raised, as nobody may be there any more to hear it."""
        assert self._api is not None
        api = self._api
        if self._unreachable and not self._reached:
            api = api.with_options(max_retries=0)  # every episode has waited long enough
        arguments = self._arguments
        create: Any = api.chat.completions.create  # not all servers know what its types allow
        try:
            completion = await create(
                model=arguments.model,
                extra_body=dict(arguments.extra_body) or None,
                **arguments.sampling,
                **request,
            )
            self._reached = True
            return read_answer(completion)
        except Exception as error:
            return self._described(error)

    async def _end(self) -> None:
        assert self._api is not None
        mine = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not mine]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._api.close()

    # -- errors

    def _described(self, error: Exception) -> AgentError:
        """Say in one line what went wrong, in the server's own words where there are some."""
        import openai

        assert self._api is not None
        server = f"the chat server {str(self._api.base_url).rstrip('/')}"
        after = _tries(error)
        if isinstance(error, AgentError):
            return AgentError(f"{server} {error}")
        if isinstance(error, openai.APIStatusError):
            self._reached = True
            said = one_line(words_of(error.body) or error.response.text)
            hint = ""
            if error.status_code == 401 and self._api.api_key == _NO_KEY:
                hint = " (no key was given: set OPENAI_API_KEY)"
            return AgentError(f"{server} answered {error.status_code}{after}: {said}{hint}")
        if isinstance(error, openai.APITimeoutError):
            seconds = self._arguments.timeout
            return AgentError(f"{server} was silent for {seconds:g} s{after}")
        if isinstance(error, openai.APIConnectionError):
            self._unreachable = True
            return AgentError(f"{server} cannot be reached{after}: {_cause(error)}")
        said = one_line(str(error))
        return AgentError(f"{server} gave no chat completion: {type(error).__name__}: {said}")


class Caller:
    """One episode's way to the client."""

    def __init__(self, client: ChatClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._pending: concurrent.futures.Future[Answer | AgentError] | None = None
        self._aborted = False

    def ask(self, request: Mapping[str, Any]) -> Answer:
        """Send a request and wait for the answer.

        Raises:
            AgentError: the server refuses, or does not answer.
            BudgetExhausted: the episode is over.
        """
        with self._lock:
            if self._aborted:
                raise BudgetExhausted("the episode was called off")
            pending = self._pending = self._client.begin(request)
        try:
            answer = pending.result()
        except concurrent.futures.CancelledError:
            raise BudgetExhausted("the episode was called off") from None
        if isinstance(answer, AgentError):
            raise answer
        return answer

    def abort(self) -> None:
        """Give up the request that is under way, from any thread, and let no other begin."""
        # Without the lock this could come between the two halves of ask(); nothing in it waits.
        with self._lock:
            self._aborted = True
            pending = self._pending
        if pending is not None:
            pending.cancel()


def _tries(error: Exception) -> str:
    """Say how often the client has tried; it counts in a header of the request."""
    request = getattr(error, "request", None)
    again = request.headers.get("x-stainless-retry-count", "0") if request is not None else "0"
    return f" ({int(again) + 1} tries)" if again.isdecimal() and again != "0" else ""


def _cause(error: BaseException) -> str:
    """Return what a failed connection failed of: the innermost words that there are."""
    said = ""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            number = inner.errno or 0  # those of names that are not found are below 0
            return os.strerror(number) if number > 0 else inner.strerror
        said = str(inner) or said
        inner = inner.__cause__ or inner.__context__
    return one_line(said)
