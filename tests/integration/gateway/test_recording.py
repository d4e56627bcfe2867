"""Exchanges recorded from a server, and answered without it."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.apis import find_target
from pytest_intercode.gateway.masking import Masks
from pytest_intercode.gateway.recording import FolderRecorder
from pytest_intercode.gateway.trajectory import turns
from tests.integration.gateway.conftest import KEY, ROUTES, Gateways, ask, body, opened, path_of
from tests.integration.gateway.test_clients import AGENTS, SCRIPT
from tests.support.model_server import ModelServer, Step


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("api", AGENTS)
def test_a_recorded_episode_is_replayed_without_a_server(
    api: str, stream: bool, gateways: Gateways, tmp_path: Path
) -> None:
    with ModelServer(SCRIPT) as server:
        first, before = opened(gateways(server, record=tmp_path))
        assert AGENTS[api](first, stream) == "It is done."
        first.close()
    files = sorted((tmp_path / "task-1").iterdir())
    assert [path.name for path in files] == ["001.json", "002.json"]
    for path in files:
        text = path.read_text()
        assert KEY not in text
        assert first.token not in text
        row = json.loads(text)
        model = "anthropic.m-v1:0" if api == "invoke" else "m"
        target = find_target("POST", path_of(api, stream))
        assert target is not None
        assert (row["method"], row["path"], row["model"]) == ("POST", target.route.path, model)
        assert (row["status"], row["complete"]) == (200, True)
    again, after = opened(gateways("http://127.0.0.1:9", replay=tmp_path, keys={}))
    assert AGENTS[api](again, stream) == "It is done."
    assert again.exchanges == first.exchanges
    assert turns(again.exchanges) == turns(first.exchanges)
    assert after.usage == before.usage
    assert (again.refusals, again.failure) == ([], "")


def test_a_replayed_stream_has_the_bytes_of_the_recorded_one(
    gateways: Gateways, tmp_path: Path
) -> None:
    given = body("messages", stream=True)
    with ModelServer(["Grüße, 世界"]) as server:
        session, _ = opened(gateways(server, record=tmp_path))
        seen = ask(session, ROUTES["messages"], given)
    session, _ = opened(gateways("http://127.0.0.1:9", replay=tmp_path))
    again = ask(session, ROUTES["messages"], given)
    assert again.body == seen.body
    assert again.headers["content-type"] == seen.headers["content-type"]


def test_errors_are_recorded_and_what_failed_is_not(gateways: Gateways, tmp_path: Path) -> None:
    steps = iter([Step(status=429, text="slow"), Step(body="<html>"), Step("now")])
    with ModelServer(lambda _: next(steps)) as server:
        session, _ = opened(gateways(server, record=tmp_path))
        statuses = [ask(session, ROUTES["chat"], body("chat")).status for _ in range(3)]
    assert statuses == [429, 502, 200]
    session, _ = opened(gateways("http://127.0.0.1:9", replay=tmp_path))
    statuses = [ask(session, ROUTES["chat"], body("chat")).status for _ in range(2)]
    assert statuses == [429, 200]


@pytest.mark.parametrize("depth", [190, 600])
def test_what_is_nested_deep_reaches_the_client(
    depth: int, gateways: Gateways, tmp_path: Path
) -> None:
    """A request within its bound is recorded; an answer has none, and was paid."""
    value = json.loads("[" * depth + "]" * depth)
    is_recorded = depth < 200
    tool = {"name": "t", "input_schema": value if is_recorded else {}}
    content = [{"type": "tool_use", "id": "t", "name": "t", "input": {"value": value}}]
    answer = {"type": "message", "role": "assistant", "model": "m", "content": content}
    with ModelServer([Step(body=answer)]) as server:
        session, ledger = opened(gateways(server, record=tmp_path))
        request = body("messages", tools=[tool])
        assert ask(session, ROUTES["messages"], request).json["content"] == content
        assert len(server.requests) == 1
    assert ledger.usage.requests == 1
    session.close()
    assert len(list((tmp_path / "task-1").glob("*.json"))) == is_recorded
    note = "an exchange could not be recorded: it is nested too deeply"
    assert session.refusals == ([] if is_recorded else [note])
    session, _ = opened(gateways("http://127.0.0.1:9", replay=tmp_path))
    assert ask(session, ROUTES["messages"], request).status == (200 if is_recorded else 403)


def _recorded(gateways: Gateways, folder: Path, *texts: str) -> None:
    with ModelServer(lambda request: f"to {request.body['messages'][-1]['content']}") as server:
        session, _ = opened(gateways(server, record=folder))
        for text in texts:
            ask(session, ROUTES["chat"], _saying(text))


def _saying(text: str, **more: Any) -> dict[str, Any]:
    return body("chat", messages=[{"role": "user", "content": text}], **more)


def test_what_differs_from_run_to_run_does_not_matter(gateways: Gateways, tmp_path: Path) -> None:
    words = "It is Sun Nov 22 2026 (2026-11-22 10:00:01). /tmp/tmpabc123, took 0.53 seconds, id "
    _recorded(gateways, tmp_path, f"{words} 01a202b0-7d11-7531-bdcf-cf5ea85f3be9")
    session, _ = opened(gateways("http://127.0.0.1:9", replay=tmp_path))
    words = "It is Mon Jan 4 2027 (2027-01-04 23:59:59). /tmp/tmpxyz, took 12.1 seconds, id "
    given = _saying(
        f"{words} ffffffff-7d11-7531-bdcf-cf5ea85f3be9", user="another", metadata={"user_id": "x"}
    )
    reordered = dict(reversed(given.items()))
    assert ask(session, ROUTES["chat"], reordered).status == 200


def test_the_token_of_a_session_does_not_matter(gateways: Gateways, tmp_path: Path) -> None:
    """An agent may print its environment, and send that on."""
    with ModelServer(["ok"]) as server:
        session, _ = opened(gateways(server, record=tmp_path))
        ask(session, ROUTES["chat"], _saying(f"OPENAI_API_KEY={session.token}"))
    again, _ = opened(gateways("http://127.0.0.1:9", replay=tmp_path))
    assert ask(again, ROUTES["chat"], _saying(f"OPENAI_API_KEY={again.token}")).status == 200


def test_a_request_that_was_not_recorded_is_named(gateways: Gateways, tmp_path: Path) -> None:
    _recorded(gateways, tmp_path, "5 passed", "6 passed")
    gateway = gateways("http://127.0.0.1:9", replay=tmp_path)
    session, _ = opened(gateway)
    assert ask(session, ROUTES["chat"], _saying("6 passed")).json["choices"]  # in any order
    missing = ask(session, ROUTES["chat"], _saying("7 passed"))
    assert (missing.status, missing.headers["x-should-retry"]) == (401, "false")
    assert missing.message.startswith("POST /v1/chat/completions, model m, digest ")
    assert missing.message.endswith(
        ": not recorded; messages[0].content: recorded '5 passed', now '7 passed'"
    )
    assert session.failure.startswith("the recording lacks a request: POST /v1/chat/completions")
    assert session.refusals == [session.failure]

    session, _ = opened(gateway)
    assert ask(session, ROUTES["chat"], _saying("5 passed")).status == 200
    assert ask(session, ROUTES["chat"], _saying("5 passed")).message.endswith(
        ": recorded 1 times, and asked once more"
    )
    session, _ = opened(gateway)
    assert ask(session, ROUTES["messages"], body("messages")).message.endswith(
        ": the recording has no further request of this route"
    )
    session, _ = opened(gateway, key="task-2")
    assert "nothing is recorded for the episode 'task-2'" in (
        ask(session, ROUTES["chat"], _saying("x")).message
    )


def test_recordings_are_checked(gateways: Gateways, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gateway-replay=.*: there is no such folder"):
        gateways("http://x", replay=tmp_path / "no")
    with pytest.raises(ConfigurationError, match="cannot record and replay in one run"):
        gateways("http://x", replay=tmp_path, record=tmp_path)
    (tmp_path / "task-1").mkdir()
    (tmp_path / "task-1" / "001.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"001\.json is not a recording of the gateway"):
        opened(gateways("http://x", replay=tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="exchanges cannot be recorded in"):
        opened(gateways("http://x", record=tmp_path / "file"))


@pytest.mark.parametrize("key", ["../../etc", "a/b", "", ".", "x" * 300, "Aufgabe über"])
def test_a_recording_stays_in_its_folder(key: str, gateways: Gateways, tmp_path: Path) -> None:
    with ModelServer(["ok"]) as server:
        session, _ = opened(gateways(server, record=tmp_path / "r"), key=key)
        ask(session, ROUTES["chat"], body("chat"))
    [folder] = tmp_path.iterdir()
    [inner] = folder.iterdir()
    assert [path.name for path in inner.iterdir()] == ["001.json"]


def test_exchanges_that_are_the_first_at_a_time_are_all_kept(tmp_path: Path) -> None:
    """Those of an earlier run go with the first one, and none of this run does."""
    numbers = range(1, 5)
    row = {"method": "POST", "path": "/v1/messages", "request": {}}
    together = threading.Barrier(len(numbers))

    def write(recorder: FolderRecorder, number: int) -> None:
        together.wait()
        recorder.write(number, row, None)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(numbers)) as threads:
            for _ in range(800):
                recorder = FolderRecorder(tmp_path, "task-1", Masks())
                list(threads.map(partial(write, recorder), numbers))
                names = sorted(path.name for path in (tmp_path / "task-1").iterdir())
                assert names == [f"{number:03}.json" for number in numbers]
    finally:
        sys.setswitchinterval(interval)


def test_an_exchange_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    recorder = FolderRecorder(tmp_path, "task-1", Masks())
    (tmp_path / "task-1" / "001.json").mkdir()
    row = {"method": "POST", "path": "/v1/chat/completions", "request": {}}
    with pytest.raises(OSError, match="directory"):
        recorder.write(1, row, {})
    assert [path.name for path in (tmp_path / "task-1").iterdir()] == ["001.json"]
