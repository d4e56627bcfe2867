"""The MCP server of episodes, through the SDK's own client and through plain HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from pytest_intercode.agents.mcp import stdio, texts
from pytest_intercode.agents.mcp.calls import Call, Calls, Reply
from pytest_intercode.agents.mcp.server import Endpoint, McpServer
from pytest_intercode.core.task import TaskView
from tests.unit.agents.mcp.tasks import view

if TYPE_CHECKING:  # the SDK takes a second to import, in each worker that collects the tests
    from mcp import Client
    from mcp.types import CallToolResult


class Episode:
    """An endpoint, and a thread that answers its calls."""

    def __init__(self, server: McpServer, folder: Path, task: TaskView) -> None:
        self.seen: list[tuple[str, str]] = []
        self.calls = Calls()
        self.server = server
        path = folder / f"socket{id(self)}"
        self.endpoint = server.open(task, self.calls, lambda: 5, path)
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def _answer(self) -> None:
        while isinstance(call := self.calls.next(60), Call):
            self.seen.append((call.tool, call.text))
            call.answer(Reply((f"{call.tool}: {call.text}", "[note]"), facts={"turns_left": 4}))

    def close(self) -> None:
        self.calls.end("aborted")
        self._thread.join()
        self.server.shut(self.endpoint)


@pytest.fixture(scope="module")
def server() -> Iterator[McpServer]:
    made = McpServer()
    yield made
    made.close()


@pytest.fixture
def episode(server: McpServer, tmp_path: Path) -> Iterator[Episode]:
    made = Episode(server, tmp_path, view())
    yield made
    made.close()


@asynccontextmanager
async def over_http(endpoint: Endpoint, mode: str = "auto") -> AsyncIterator[Client]:
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {endpoint.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as plain,
        Client(streamable_http_client(endpoint.url, http_client=plain), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(endpoint: Endpoint, mode: str = "auto") -> AsyncIterator[Client]:
    from mcp import Client, StdioServerParameters, stdio_client

    words = ["-IS", str(stdio.__file__), str(endpoint.socket)]
    parameters = StdioServerParameters(command=sys.executable, args=words)
    async with Client(stdio_client(parameters), mode=mode) as client:
        yield client


def play(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work(), 60)

    asyncio.run(bounded())


def blocks(result: CallToolResult) -> list[str]:
    from mcp.types import TextContent

    return [block.text for block in result.content if isinstance(block, TextContent)]


# -- what a client sees


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("connect", [over_http, over_stdio])
def test_a_client_finds_two_tools_and_calls_them(
    connect: Callable[..., Any], mode: str, episode: Episode
) -> None:
    async def work() -> None:
        async with connect(episode.endpoint, mode) as client:
            assert "Say hello." in client.instructions
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {"execute", "submit"}
            assert "bash commands" in tools["execute"].description
            assert "5 turns left" in tools["execute"].description
            result = await client.call_tool("execute", {"code": "echo \u00e9 'x'\n"})
            assert blocks(result) == ["execute: echo \u00e9 'x'\n", "[note]"]
            assert not result.is_error
            assert result.meta["pytest-intercode/result"] == {"turns_left": 4}
            await client.call_tool("submit", {})
            await client.call_tool("submit", {"answer": "42"})
            await client.call_tool("submit", {"answer": None})

    assert not episode.endpoint.connected
    play(work)
    assert episode.endpoint.connected
    assert episode.seen[1:] == [("submit", ""), ("submit", "42"), ("submit", "")]


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("execute", {}, "execute takes code, a string; found nothing. Nothing was run."),
        ("execute", {"code": 1}, "execute takes code, a string; found 1."),
        ("execute", {"command": "ls"}, "takes code and nothing else; found 'command'"),
        ("submit", {"answer": ["x"]}, "submit takes answer, a string; found ['x']"),
        ("shell", {"code": "ls"}, "There is no tool 'shell': there are execute and submit."),
    ],
)
def test_a_wrong_call_is_told_and_takes_no_turn(
    tool: str, arguments: dict[str, Any], said: str, episode: Episode
) -> None:
    async def work() -> None:
        async with over_http(episode.endpoint) as client:
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert said in blocks(result)[0]

    play(work)
    assert episode.seen == []


def test_long_and_odd_texts_pass_both_ways(episode: Episode) -> None:
    code = "\u2028\x00\x1b\r\n\U0001f600" + "x" * 3_000_000

    async def work() -> None:
        for connect in (over_http, over_stdio):
            async with connect(episode.endpoint) as client:
                result = await client.call_tool("execute", {"code": code})
                assert blocks(result)[0] == f"execute: {code}"

    play(work)


def test_half_a_surrogate_pair_in_an_observation_is_replaced(
    server: McpServer, tmp_path: Path
) -> None:
    calls = Calls()
    endpoint = server.open(view(), calls, lambda: 5, tmp_path / "s")

    def answer() -> None:
        call = calls.next(60)
        assert isinstance(call, Call)
        call.answer(Reply(("a\udcffb",), facts={"observation": "a\udcffb"}))

    thread = threading.Thread(target=answer)
    thread.start()

    async def work() -> None:
        async with over_http(endpoint) as client:
            assert blocks(await client.call_tool("execute", {"code": ""})) == ["a\ufffdb"]

    play(work)
    thread.join()
    server.shut(endpoint)


def test_many_calls_at_once_are_all_answered(episode: Episode) -> None:
    async def work() -> None:
        async with over_http(episode.endpoint) as one, over_stdio(episode.endpoint) as other:
            calls = [
                client.call_tool("execute", {"code": str(number)})
                for number, client in enumerate([one, other] * 8)
            ]
            results = await asyncio.gather(*calls)
        assert [blocks(result)[0] for result in results] == [
            f"execute: {number}" for number in range(16)
        ]

    play(work)
    assert len(episode.seen) == 16


def test_answers_over_http_are_sent_at_once(episode: Episode) -> None:
    """Two sides that wait for each other's acknowledgement take 40 ms, every time."""
    address = episode.endpoint.url.removeprefix("http://").removesuffix("/mcp")
    connection = http.client.HTTPConnection(address, timeout=60)
    took = []
    for _ in range(10):
        began = time.monotonic()
        assert ask(connection, episode.endpoint) == 200
        took.append(time.monotonic() - began)
    connection.close()
    assert min(took[1:]) < 0.035


# -- who is let in


def ask(
    connection: http.client.HTTPConnection,
    endpoint: Endpoint,
    headers: dict[str, str] | None = None,
    path: str = "/mcp",
    method: str = "POST",
) -> int:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if headers is None:
        headers = {"Authorization": f"Bearer {endpoint.token}"}
    connection.request(method, path, json.dumps(asked), {**usual, **headers})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def post(
    endpoint: Endpoint, headers: dict[str, str], *, path: str = "/mcp", method: str = "POST"
) -> int:
    address = endpoint.url.removeprefix("http://").removesuffix("/mcp")
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        return ask(connection, endpoint, headers, path, method)
    finally:
        connection.close()


def test_only_the_token_opens_the_door(server: McpServer, episode: Episode, tmp_path: Path) -> None:
    other = Episode(server, tmp_path, view(query="Another task."))
    mine = {"Authorization": f"Bearer {episode.endpoint.token}"}
    assert other.endpoint.token != episode.endpoint.token
    for headers in (
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {episode.endpoint.token}x"},
        {"Authorization": episode.endpoint.token},
        {"Authorization": f"Basic {episode.endpoint.token}"},
        {"Authorization": "Bearer \u00e9"},
    ):
        assert post(episode.endpoint, headers) == 401
    assert not episode.endpoint.connected
    assert post(episode.endpoint, mine) == 200
    assert episode.endpoint.connected
    assert not other.endpoint.connected
    theirs = {"Authorization": f"bearer {other.endpoint.token}"}
    assert post(other.endpoint, theirs) == 200
    other.close()
    assert post(episode.endpoint, theirs) == 401


def test_a_page_in_a_browser_is_not_let_in(episode: Episode) -> None:
    mine = {"Authorization": f"Bearer {episode.endpoint.token}"}
    assert post(episode.endpoint, {**mine, "Host": "evil.example:80"}) == 421
    assert post(episode.endpoint, {**mine, "Origin": "http://evil.example"}) == 403
    assert post(episode.endpoint, {**mine, "Origin": "null"}) == 403


def test_only_one_address_and_one_method(episode: Episode) -> None:
    mine = {"Authorization": f"Bearer {episode.endpoint.token}"}
    assert post(episode.endpoint, mine, path="/") == 404
    assert post(episode.endpoint, mine, method="GET") == 405
    assert post(episode.endpoint, mine, method="DELETE") == 405
    assert post(episode.endpoint, {}, method="GET") == 401


# -- the end


def test_nothing_is_left_when_an_episode_is_shut_in_the_middle(
    server: McpServer, tmp_path: Path
) -> None:
    """Both transports have a call on the way that nobody answers."""
    before = server._portal.call(_tasks)
    calls = Calls()
    endpoint = server.open(view(), calls, lambda: 5, tmp_path / "s")
    ends: list[str] = []

    async def work() -> None:
        async def ask(connect: Callable[[Endpoint], Any]) -> None:
            try:
                async with connect(endpoint) as client:
                    result = await client.call_tool("execute", {"code": "sleep"})
                    assert result.is_error
                    ends.append("over")
            except BaseException as error:
                ends.append(type(error).__name__)

        asking = [asyncio.create_task(ask(connect)) for connect in (over_http, over_stdio)]
        for _ in asking:
            assert isinstance(await asyncio.to_thread(calls.next, 60), Call)
        calls.close(texts.OVER)
        assert await calls.ask("execute", "later") is texts.OVER
        await asyncio.to_thread(server.shut, endpoint)
        await asyncio.to_thread(server.shut, endpoint)
        await asyncio.wait(asking, timeout=60)

    play(work)
    assert ends[0] == "over"
    assert len(ends) == 2
    assert server._portal.call(_tasks) <= before + _WATCHERS


_WATCHERS = 1  # sse-starlette has one task for each event loop


async def _tasks() -> int:
    await asyncio.sleep(0.2)
    own = asyncio.current_task()
    return len([task for task in asyncio.all_tasks() if task is not own])


def test_a_server_ends_with_its_thread_and_its_sockets(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    server = McpServer()
    endpoint = server.open(view(), Calls(), lambda: 5, tmp_path / "s")
    assert post(endpoint, {"Authorization": f"Bearer {endpoint.token}"}) == 200
    server.close()
    server.close()
    server.shut(endpoint)
    assert set(threading.enumerate()) <= before  # an earlier test's may end meanwhile
    with pytest.raises(ConnectionRefusedError):
        post(endpoint, {})


def test_the_stdio_process_ends_with_its_agent_and_says_when_it_is_too_late(
    episode: Episode, tmp_path: Path
) -> None:
    words = [sys.executable, "-IS", str(stdio.__file__)]
    done = subprocess.run(
        [*words, str(episode.endpoint.socket)], input=b"", capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    late = subprocess.run([*words, str(tmp_path / "gone")], capture_output=True, timeout=60)
    assert late.returncode == 1
    assert b"the episode is over" in late.stderr
