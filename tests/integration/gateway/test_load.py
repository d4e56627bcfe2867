"""Streams as they come, many at a time, and clients that ask for too much."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import aiohttp

from pytest_intercode.gateway.server import _MAX_CONNECTIONS, _MAX_RUNNING, _MAX_WAITING
from tests.integration.gateway.conftest import ROUTES, Gateways, ask, body, opened, path_of
from tests.support.model_server import ModelServer, Step

_FEW_EVENTS = ("gemini", "converse")  # whose paths say that they are streamed
WORDS = "one two three four five six seven eight nine ten eleven twelve"


async def _stream(client: aiohttp.ClientSession, session: Any, api: str) -> tuple[list[float], str]:
    """Return when each piece of a streamed answer came, and the whole."""
    came: list[float] = []
    data = b""
    async with client.post(
        session.url("anthropic") + path_of(api, stream=True),
        params={"alt": "sse"} if api == "gemini" else None,
        json=body(api) if api in _FEW_EVENTS else body(api, stream=True),
        headers={"x-api-key": session.token},
    ) as answer:
        assert answer.status == 200, await answer.text()
        async for piece in answer.content.iter_any():
            came.append(time.monotonic())
            data += piece
    return came, data.decode("utf-8", "replace")


def test_a_stream_comes_event_by_event(gateways: Gateways) -> None:
    async def play(session: Any) -> None:
        async with aiohttp.ClientSession() as client:
            for api in ROUTES:
                came, text = await _stream(client, session, api)
                events = text.count("\n\n") or text.count(":event-type")
                events = events or text.count("\r\n\r\n")
                assert events > 2
                assert len(came) >= events // 2, "events are kept back"
                assert came[-1] - came[0] > 0.03 * (events - 3)

    with ModelServer([Step(WORDS, pause=0.03)]) as server:
        session, _ = opened(gateways(server))
        asyncio.run(play(session))


def test_64_streams_at_a_time(gateways: Gateways) -> None:
    """Of eight episodes; none waits for another, each gets its own answers, and each is metered."""

    async def play(sessions: list[Any]) -> list[tuple[list[float], str]]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
            apis = [api for api in ROUTES if api not in _FEW_EVENTS] * 3
            return await asyncio.gather(
                *(
                    _stream(client, session, apis[number])
                    for session in sessions
                    for number in range(8)
                )
            )

    with ModelServer(lambda r: Step(WORDS, pause=0.02), together=64) as server:
        gateway = gateways(server)
        pairs = [opened(gateway, key=f"task-{n}") for n in range(8)]
        answers = asyncio.run(play([session for session, _ in pairs]))
    assert len(answers) == 64
    for _, text in answers:
        assert text.rstrip().endswith(("[DONE]", "}"))
    for session, ledger in pairs:
        assert (ledger.usage.requests, ledger.usage.tokens) == (8, 8 * 107)
        assert (len(session.exchanges), session.refusals) == (8, [])
        assert all(exchange.complete for exchange in session.exchanges)


def test_a_session_runs_some_at_a_time_and_lets_some_wait(gateways: Gateways) -> None:
    async def play(session: Any, server: ModelServer) -> tuple[int, int]:
        """Return how many were refused, and how many have reached the server."""
        refused = 0

        async def one(client: aiohttp.ClientSession) -> None:
            nonlocal refused
            url = session.url("openai") + "/chat/completions"
            head = {"authorization": f"Bearer {session.token}"}
            async with client.post(url, json=body("chat"), headers=head) as answer:
                refused += answer.status == 429

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
            all_ = [
                asyncio.create_task(one(client)) for _ in range(_MAX_RUNNING + _MAX_WAITING + 9)
            ]
            until = time.monotonic() + 10
            while (refused, len(server.requests)) != (9, _MAX_RUNNING) and time.monotonic() < until:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.05)
            for task in all_:
                task.cancel()
            await asyncio.gather(*all_, return_exceptions=True)
            return refused, len(server.requests)

    with ModelServer([Step("x", fault="silent")]) as server:
        session, _ = opened(gateways(server))
        assert asyncio.run(play(session, server)) == (9, _MAX_RUNNING)
        session.close()
    assert [line for line in session.refusals if "too many requests at a time" in line]


def test_a_flood_of_connections_does_not_keep_others_out(gateways: Gateways, tmp_path: Any) -> None:
    """It fills the listener of its own sandbox, and no other."""
    with ModelServer(["ok"]) as server:
        gateway = gateways(server)
        hostile, _ = opened(gateway, socket=tmp_path / "a")
        good, _ = opened(gateway, key="task-2", socket=tmp_path / "b")
        flood = []
        try:
            for _ in range(_MAX_CONNECTIONS + 50):
                raw = socket.socket(socket.AF_UNIX)
                flood.append(raw)
                raw.connect(str(tmp_path / "a"))
                raw.settimeout(60)
            assert ask(good, ROUTES["chat"], body("chat")).status == 200
            ended = 0
            for raw in flood[-20:]:
                try:
                    ended += raw.recv(1) == b""
                except ConnectionError:
                    ended += 1
            assert ended == 20
            data = json.dumps(body("chat")).encode()
            with socket.socket(socket.AF_UNIX) as raw:
                raw.connect(str(tmp_path / "b"))
                head = f"x-api-key: {good.token}\r\ncontent-length: {len(data)}\r\n\r\n"
                raw.sendall(f"POST {ROUTES['chat']} HTTP/1.1\r\nhost: x\r\n{head}".encode() + data)
                assert raw.recv(100).startswith(b"HTTP/1.1 200 OK")
        finally:
            for raw in flood:
                raw.close()
        hostile.close()
