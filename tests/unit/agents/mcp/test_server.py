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
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from pytest_intercode.agents.mcp import stdio, wording
from pytest_intercode.agents.mcp.calls import Call, Calls, Event, Reply
from pytest_intercode.agents.mcp.server import Door, Serving
from pytest_intercode.agents.mcp.tools import make_server
from pytest_intercode.core.task import TaskView

_STOP = Event("stop")


def view(env: str = "bash", query: str = "Say hello.", **more: Any) -> TaskView:
    return TaskView(
        **{
            "id": "t",
            "query": query,
            "env": env,
            "suite": "s",
            "dataset": "s",
            "hardness": "",
            "tags": (),
            "workdir": "/",
            "max_turns": 7,
            **more,
        }
    )


class Episode:
    """A door, and a thread that answers the calls that come through it."""

    def __init__(self, serving: Serving, folder: Path, task: TaskView) -> None:
        self.seen: list[tuple[str, str]] = []
        self.calls = Calls()
        self.serving = serving
        server = make_server(task, self.calls, lambda: 5)
        self.door: Door = serving.open(server, folder / f"socket{id(self)}")
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def _answer(self) -> None:
        while isinstance(call := self.calls.next(60), Call):
            self.seen.append((call.tool, call.text))
            call.answer(Reply((f"{call.tool}: {call.text}", "[note]"), facts={"turns_left": 4}))

    def close(self) -> None:
        self.calls.tell(_STOP)
        self._thread.join()
        self.serving.shut(self.door)


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    made = Serving()
    yield made
    made.close()


@pytest.fixture
def episode(serving: Serving, tmp_path: Path) -> Iterator[Episode]:
    made = Episode(serving, tmp_path, view())
    yield made
    made.close()


@asynccontextmanager
async def over_http(door: Door, mode: str = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {door.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as plain,
        Client(streamable_http_client(door.url, http_client=plain), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(door: Door, mode: str = "auto") -> AsyncIterator[Client]:
    words = ["-IS", str(stdio.__file__), str(door.socket)]
    parameters = StdioServerParameters(command=sys.executable, args=words)
    async with Client(stdio_client(parameters), mode=mode) as client:
        yield client


def play(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work(), 60)

    asyncio.run(bounded())


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


# -- what a client sees


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("connect", [over_http, over_stdio])
def test_a_client_finds_two_tools_and_calls_them(
    connect: Callable[..., Any], mode: str, episode: Episode
) -> None:
    async def work() -> None:
        async with connect(episode.door, mode) as client:
            assert "Say hello." in client.instructions
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {"execute", "submit"}
            assert "bash commands" in tools["execute"].description
            assert "5 turns left" in tools["execute"].description
            result = await client.call_tool("execute", {"code": "echo \u00e9 'x'\n"})
            assert texts(result) == ["execute: echo \u00e9 'x'\n", "[note]"]
            assert not result.is_error
            assert result.meta["pytest-intercode/result"] == {"turns_left": 4}
            await client.call_tool("submit", {})
            await client.call_tool("submit", {"answer": "42"})
            await client.call_tool("submit", {"answer": None})

    assert not episode.door.used
    play(work)
    assert episode.door.used
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
        async with over_http(episode.door) as client:
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert said in texts(result)[0]

    play(work)
    assert episode.seen == []


def test_long_and_odd_texts_pass_both_ways(episode: Episode) -> None:
    code = "\u2028\x00\x1b\r\n\U0001f600" + "x" * 3_000_000

    async def work() -> None:
        for connect in (over_http, over_stdio):
            async with connect(episode.door) as client:
                result = await client.call_tool("execute", {"code": code})
                assert texts(result)[0] == f"execute: {code}"

    play(work)


def test_half_a_surrogate_pair_in_an_observation_is_replaced(
    serving: Serving, tmp_path: Path
) -> None:
    calls = Calls()
    door = serving.open(make_server(view(), calls, lambda: 5), tmp_path / "s")

    def answer() -> None:
        call = calls.next(60)
        assert isinstance(call, Call)
        call.answer(Reply(("a\udcffb",), facts={"observation": "a\udcffb"}))

    thread = threading.Thread(target=answer)
    thread.start()

    async def work() -> None:
        async with over_http(door) as client:
            assert texts(await client.call_tool("execute", {"code": ""})) == ["a?b"]

    play(work)
    thread.join()
    serving.shut(door)


def test_many_calls_at_once_are_all_answered(episode: Episode) -> None:
    async def work() -> None:
        async with over_http(episode.door) as one, over_stdio(episode.door) as other:
            calls = [
                client.call_tool("execute", {"code": str(number)})
                for number, client in enumerate([one, other] * 8)
            ]
            results = await asyncio.gather(*calls)
        assert [texts(result)[0] for result in results] == [
            f"execute: {number}" for number in range(16)
        ]

    play(work)
    assert len(episode.seen) == 16


def test_answers_over_http_are_sent_at_once(episode: Episode) -> None:
    """Two sides that wait for each other's acknowledgement take 40 ms, every time."""
    address = episode.door.url.removeprefix("http://").removesuffix("/mcp")
    connection = http.client.HTTPConnection(address, timeout=60)
    took = []
    for _ in range(10):
        began = time.monotonic()
        assert ask(connection, episode.door) == 200
        took.append(time.monotonic() - began)
    connection.close()
    assert min(took[1:]) < 0.035


# -- who is let in


def ask(
    connection: http.client.HTTPConnection,
    door: Door,
    headers: dict[str, str] | None = None,
    path: str = "/mcp",
    method: str = "POST",
) -> int:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if headers is None:
        headers = {"Authorization": f"Bearer {door.token}"}
    connection.request(method, path, json.dumps(asked), {**usual, **headers})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def post(door: Door, headers: dict[str, str], *, path: str = "/mcp", method: str = "POST") -> int:
    address = door.url.removeprefix("http://").removesuffix("/mcp")
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        return ask(connection, door, headers, path, method)
    finally:
        connection.close()


def test_only_the_token_opens_the_door(serving: Serving, episode: Episode, tmp_path: Path) -> None:
    other = Episode(serving, tmp_path, view(query="Another task."))
    mine = {"Authorization": f"Bearer {episode.door.token}"}
    assert other.door.token != episode.door.token
    for headers in (
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {episode.door.token}x"},
        {"Authorization": episode.door.token},
        {"Authorization": f"Basic {episode.door.token}"},
        {"Authorization": "Bearer \u00e9"},
    ):
        assert post(episode.door, headers) == 401
    assert not episode.door.used
    assert post(episode.door, mine) == 200
    assert episode.door.used
    assert not other.door.used
    theirs = {"Authorization": f"bearer {other.door.token}"}
    assert post(other.door, theirs) == 200
    other.close()
    assert post(episode.door, theirs) == 401


def test_a_page_in_a_browser_is_not_let_in(episode: Episode) -> None:
    mine = {"Authorization": f"Bearer {episode.door.token}"}
    assert post(episode.door, {**mine, "Host": "evil.example:80"}) == 421
    assert post(episode.door, {**mine, "Origin": "http://evil.example"}) == 403
    assert post(episode.door, {**mine, "Origin": "null"}) == 403


def test_only_one_address_and_one_method(episode: Episode) -> None:
    mine = {"Authorization": f"Bearer {episode.door.token}"}
    assert post(episode.door, mine, path="/") == 404
    assert post(episode.door, mine, method="GET") == 405
    assert post(episode.door, mine, method="DELETE") == 405
    assert post(episode.door, {}, method="GET") == 401


# -- the end


def test_nothing_is_left_when_an_episode_is_shut_in_the_middle(
    serving: Serving, tmp_path: Path
) -> None:
    """Both transports have a call on the way that nobody answers."""
    calls = Calls()
    door = serving.open(make_server(view(), calls, lambda: 5), tmp_path / "s")
    ends: list[str] = []

    async def work() -> None:
        async def ask(connect: Callable[[Door], Any]) -> None:
            try:
                async with connect(door) as client:
                    result = await client.call_tool("execute", {"code": "sleep"})
                    assert result.is_error
                    ends.append("over")
            except BaseException as error:
                ends.append(type(error).__name__)

        asking = [asyncio.create_task(ask(connect)) for connect in (over_http, over_stdio)]
        for _ in asking:
            assert isinstance(await asyncio.to_thread(calls.next, 60), Call)
        calls.close(wording.OVER)
        assert await calls.ask("execute", "later") is wording.OVER
        await asyncio.to_thread(serving.shut, door)
        await asyncio.to_thread(serving.shut, door)
        await asyncio.wait(asking, timeout=60)

    play(work)
    assert ends[0] == "over"
    assert len(ends) == 2
    assert asyncio.run_coroutine_threadsafe(_tasks(), serving._loop).result(60) <= 1 + _WATCHERS


_WATCHERS = 1  # sse-starlette has one task for each event loop


async def _tasks() -> int:
    await asyncio.sleep(0.2)
    own = asyncio.current_task()
    return len([task for task in asyncio.all_tasks() if task is not own])


def test_a_server_ends_with_its_thread_and_its_sockets(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    serving = Serving()
    door = serving.open(make_server(view(), Calls(), lambda: 5), tmp_path / "s")
    assert post(door, {"Authorization": f"Bearer {door.token}"}) == 200
    serving.close()
    serving.close()
    serving.shut(door)
    assert set(threading.enumerate()) == before
    with pytest.raises(ConnectionRefusedError):
        post(door, {})


def test_the_stdio_process_ends_with_its_agent_and_says_when_it_is_too_late(
    episode: Episode, tmp_path: Path
) -> None:
    words = [sys.executable, "-IS", str(stdio.__file__)]
    done = subprocess.run(
        [*words, str(episode.door.socket)], input=b"", capture_output=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    late = subprocess.run([*words, str(tmp_path / "gone")], capture_output=True, timeout=60)
    assert late.returncode == 1
    assert b"the episode is over" in late.stderr


# -- words


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (view("bash"), "bash commands"),
        (view("sql", engine="sqlite", database="shop"), "SQL statements for SQLite, run in"),
        (view("sql", engine="mysql", database="shop"), "SQL statements for MySQL, run in"),
        (view("python"), "Python source"),
        (view("ctf"), "Only the flag"),
    ],
)
def test_an_agent_is_told_the_language_and_the_task(task: TaskView, said: str) -> None:
    for text in (wording.instructions(task), wording.prompt(task)):
        assert said in text
        assert text.endswith("\nSay hello.")
        assert "7 turns" in text
    assert not any("  " in text for text in (wording.describe_submit(task), wording.prompt(task)))


@pytest.mark.parametrize(
    ("facts", "note"),
    [
        ({"status": 0}, "[status 0; 3 turns left]"),
        ({"status": 2, "executed": False, "turns_left": 1}, "[status 2; 1 turn left]"),
        ({"executed": False}, "[failed; 3 turns left]"),
        ({"reward": 0.5}, "[done; reward 0.50; 3 turns left]"),
    ],
)
def test_the_note_says_how_things_stand(facts: dict[str, Any], note: str) -> None:
    usual = {"status": None, "executed": True, "reward": None, "turns_left": 3}
    assert wording.reply("out\n", **{**usual, **facts}).texts == ("out\n", note)
    assert wording.reply(" \n", **{**usual, **facts}).texts == (note,)


def test_the_last_note_says_stop() -> None:
    usual: dict[str, Any] = {"status": 0, "executed": True, "turns_left": 0}
    last = wording.over("out", reward=None, **usual)
    assert last.texts == ("out", "[status 0; no turns left, and the episode is over: stop now]")
    solved = wording.over("out", reward=1.0, **usual)
    assert "the task is solved, and the episode is over" in solved.texts[-1]
    assert last.facts["over"]
    assert not last.error
    assert wording.OVER.error
