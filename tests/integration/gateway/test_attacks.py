"""What an agent may send to leave through the gateway, to cost more, or to harm its neighbours.

Each looks at what has come to the server: nothing that was not checked, and nobody else's.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.server import _MAX_CONNECTIONS
from pytest_intercode.gateway.trajectory import final_message
from tests.integration.agents.test_installed import RECIPE
from tests.integration.gateway.conftest import KEY, ROUTES, Gateways, ask, body, opened
from tests.support.installed import SUPPORT, World
from tests.support.model_server import Command, ModelServer, Step


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(["hello"]) as running:
        yield running


CHAT = b'"messages":[{"role":"user","content":"x"}]'


@pytest.mark.parametrize(
    "data",
    [
        b'{"model":"m","model":"dear",' + CHAT + b"}",  # the last one counts, and is dear
        b'{"mod\\u0065l":"dear",' + CHAT + b"}",
        b'{"model":"m","Model":"dear",' + CHAT + b"}",
        b'{"model":"m","MODEL":"dear",' + CHAT + b"}",
        '{"model":"m","mode\u217c":"dear",'.encode() + CHAT + b"}",  # a Roman numeral
        '{"model":"m","\u200bmodel":"dear",'.encode() + CHAT + b"}",
        b'{"model":"m\\u0000dear",' + CHAT + b"}",
        b'{"model":" m",' + CHAT + b"}",
        b'{"model":"M",' + CHAT + b"}",
        b'{"model":["m","dear"],' + CHAT + b"}",
        b'{"model":"m",' + CHAT + b'}{"model":"dear"}',  # behind the end
        b'{"model":"m",' + CHAT + b"}\r\n\r\nPOST /v1/files HTTP/1.1\r\n\r\n",
        b'\xef\xbb\xbf{"model":"dear",' + CHAT + b"}",
        json.dumps({"model": "dear", "messages": []}).encode("utf-16"),
        b'{"model":"m",' + CHAT + b',"extra_body":{"model":"dear"}}',
        b'{"model":"m",' + CHAT + b',"seed":' + b"9" * 6000 + b"}",
        b'{"model":"m",' + CHAT + b',"n":1.0000000000000002}',
        b'{"model":"m",' + CHAT + b',"n":1e400}',
        b'{"model":"m",' + CHAT + b',"stream_options":{"include_usage":{"x":[]}}}',
        b'{"model":"m",' + CHAT + b',"stream":[true]}',
    ],
)
def test_a_body_that_two_parsers_may_read_differently(
    data: bytes, server: ModelServer, gateways: Gateways
) -> None:
    session, _ = opened(gateways(server, models=("m",)))
    answer = ask(session, ROUTES["chat"], data)
    assert answer.status in (400, 404)
    assert len(answer.message) < 400
    assert answer.message.isprintable()
    assert server.requests == []
    assert ask(session, ROUTES["chat"], body("chat")).status == 200


def test_the_usage_cannot_be_switched_off(server: ModelServer, gateways: Gateways) -> None:
    for options in ({"include_usage": False}, {"include_usage": 0}, {}, None):
        session, ledger = opened(gateways(server))
        given = body("chat", stream=True, stream_options=options)
        assert ask(session, ROUTES["chat"], given).status == 200
        assert ledger.usage.input_tokens == 100
    for request in server.requests:
        assert request.body["stream_options"]["include_usage"] is True


@pytest.mark.parametrize(
    ("encoding", "encode"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("gzip, gzip", lambda data: gzip.compress(gzip.compress(data))),
        ("identity, gzip", gzip.compress),
        ("x-unknown", bytes),
        ("gzip", lambda data: gzip.compress(data)[:-9]),
        ("gzip", lambda data: gzip.compress(data) + gzip.compress(b"{}")),
    ],
)
def test_an_encoded_body_is_what_it_says_or_nothing(
    encoding: str, encode: Any, server: ModelServer, gateways: Gateways
) -> None:
    session, _ = opened(gateways(server, models=("m",)))
    data = json.dumps(body("chat", models=["dear"])).encode()
    headers = {"content-encoding": encoding}
    answer = ask(session, ROUTES["chat"], encode(data), headers=headers)
    assert answer.status == 400
    assert server.requests == []


def test_a_compressed_bomb_is_refused(server: ModelServer, gateways: Gateways) -> None:
    session, _ = opened(gateways(server))
    bomb = gzip.compress(b" " * (200 * 1024 * 1024), 9)
    answer = ask(session, ROUTES["chat"], bomb, headers={"content-encoding": "gzip"})
    assert answer.status in (400, 413)
    assert server.requests == []


@pytest.mark.parametrize(
    "headers",
    [
        {"anthropic-beta": "effort-2025-11-24,mcp-client-2025-11-20", "x-api-key": "sk-mine"},
        {"anthropic-version": "2023-06-01" + "x" * 300},
        {"user-agent": "a\tb"},
        {"accept": "x" * 5000},
        {"openai-project": "p", "x-goog-user-project": "p", "openrouter-model": "dear"},
        {"anthropic-dangerous-direct-browser-access": "true", "x-stainless-async": "true"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"http2-settings": "AAMAAABkAAQAAP__", "connection": "Upgrade, HTTP2-Settings"},
    ],
)
@pytest.mark.parametrize("api", ["chat", "messages"])
def test_what_a_header_says_beyond_the_known_is_left_out(
    api: str, headers: dict[str, str], server: ModelServer, gateways: Gateways
) -> None:
    session, _ = opened(gateways(server))
    assert ask(session, ROUTES[api], body(api), headers=headers).status == 200
    [request] = server.requests
    known = {"host", "accept-encoding", "content-type", "content-length"}
    known |= {"authorization"} if api == "chat" else {"x-api-key"}
    assert set(request.headers) - known <= {"anthropic-beta"}
    assert request.headers.get("anthropic-beta", "effort-2025-11-24") == "effort-2025-11-24"
    assert request.headers["content-type"] == "application/json"
    assert "sk-mine" not in str(request.headers)


@pytest.mark.parametrize("query", ["?beta=true&x=1", "?beta=TRUE", "?api-version=1", "?key=x#y"])
def test_a_query_leads_nowhere(query: str, server: ModelServer, gateways: Gateways) -> None:
    session, _ = opened(gateways(server))
    assert ask(session, ROUTES["messages"] + query, body("messages")).status == 200
    assert server.requests[0].path == "/v1/messages"


def test_a_server_that_repeats_the_key_tells_nobody(gateways: Gateways, tmp_path: Path) -> None:
    """Neither the agent, nor the record of the episode, nor the recording."""
    whole = {"choices": [{"message": {"content": f"it is {KEY}"}, "finish_reason": "stop"}]}
    event = {"choices": [{"delta": {"content": f"it is {KEY}"}, "finish_reason": "stop"}]}
    streamed = f"data: {json.dumps(event)}\n\ndata: [DONE]\n\n"
    steps = [
        Step(body=whole),
        Step(body=streamed, content_type="text/event-stream"),
        Step(body=f"no JSON, {KEY}"),
    ]
    for number, step in enumerate(steps):
        with ModelServer([step]) as server:
            session, _ = opened(gateways(server, record=tmp_path), key=f"task-{number}")
            answer = ask(session, ROUTES["chat"], body("chat", stream=number == 1))
        assert KEY.encode() not in answer.body
        assert KEY not in str([exchange.answer for exchange in session.exchanges])
        assert KEY not in str(session.refusals)
        if number < 2:
            assert final_message(session.exchanges) == "it is ***"
    assert not [path for path in tmp_path.glob("*/*") if KEY in path.read_text()]


# -- recordings of others


def test_a_folder_of_recordings_that_is_a_link_is_not_written_to(
    server: ModelServer, gateways: Gateways, tmp_path: Path
) -> None:
    """Or recording would remove files of the user's, which have such names."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "2024.json").write_text("my accounts")
    (tmp_path / "recorded").mkdir()
    (tmp_path / "recorded" / "task-1").symlink_to(mine)
    with pytest.raises(ConfigurationError, match="its folder is a link"):
        opened(gateways(server, record=tmp_path / "recorded"))
    assert (mine / "2024.json").read_text() == "my accounts"


def test_links_among_recordings_are_not_written_through(
    server: ModelServer, gateways: Gateways, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    folder = tmp_path / "recorded" / "task-1"
    folder.mkdir(parents=True)
    for name in ("001.json", "001.part", "002.json"):
        (folder / name).symlink_to(mine)
    (folder / "notes-1.json").write_text("of the user's")
    session, _ = opened(gateways(server, record=tmp_path / "recorded"))
    assert ask(session, ROUTES["chat"], body("chat")).status == 200
    assert mine.read_text() == "mine"
    assert not (folder / "001.json").is_symlink()
    assert (folder / "notes-1.json").read_text() == "of the user's"


_ODD: dict[str, dict[str, object]] = {
    "type": {"content_type": "text/html\r\nset-cookie: a=b"},
    "status": {"status": 101},
    "endless status": {"status": math.inf},
    "half a status": {"status": 200.5},
    "one text": {"pieces": "text"},
    "no texts": {"pieces": [{}]},
    "no characters": {"pieces": ["\ud800"]},
}


@pytest.mark.parametrize("kind", ["link", "pipe", "device", "folder", "deep", *_ODD])
def test_a_recording_of_somebody_else_is_one_line(
    kind: str, server: ModelServer, gateways: Gateways, tmp_path: Path
) -> None:
    with ModelServer(["ok"]) as running:
        session, _ = opened(gateways(running, record=tmp_path))
        assert ask(session, ROUTES["chat"], body("chat")).status == 200
    path = tmp_path / "task-1" / "001.json"
    row = json.loads(path.read_text())
    path.unlink()
    if kind == "link":
        secret = tmp_path / "secret"
        secret.write_text(json.dumps(row))
        path.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind in _ODD:
        path.write_text(json.dumps({**row, **_ODD[kind]}))
    else:
        path.write_text('{"version": 1, "request": ' + "[" * 100_000)
    with pytest.raises(
        ConfigurationError, match=r"001\.json is not a recording of the gateway"
    ) as e:
        opened(gateways(server, replay=tmp_path))
    assert len(str(e.value).removeprefix(str(path))) < 200
    assert str(e.value).isprintable()


def test_a_recording_cannot_answer_with_what_is_no_text(gateways: Gateways, tmp_path: Path) -> None:
    with ModelServer(["ok"]) as running:
        session, _ = opened(gateways(running, record=tmp_path))
        assert ask(session, ROUTES["chat"], body("chat")).status == 200
    path = tmp_path / "task-1" / "001.json"
    row = json.loads(path.read_text())
    path.write_text(json.dumps({**row, "pieces": ["\x1b[2J"]}))
    session, _ = opened(gateways("http://127.0.0.1:9", replay=tmp_path))
    assert ask(session, ROUTES["chat"], body("chat")).status == 502
    assert "\x1b" not in str(session.refusals)


# -- neighbours

# Opens connections and keeps them, in a network namespace of its own, as a sandbox's is.
HOLDER = """\
import socket, sys
held = []
for path in sys.argv[2:]:
    for _ in range(int(sys.argv[1])):
        one = socket.socket(socket.AF_UNIX)
        one.connect(path)
        held.append(one)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_sandbox_cannot_take_a_neighbours_connections(
    server: ModelServer, gateways: Gateways, tmp_path: Path
) -> None:
    """Root in a sandbox can list the folder with the sockets of all episodes."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("it needs root, for a network namespace")
    path = tmp_path / "socket"
    session, _ = opened(gateways(server), socket=path)
    words = [
        "unshare",
        "--net",
        sys.executable,
        "-c",
        HOLDER,
        str(_MAX_CONNECTIONS + 60),
        str(path),
    ]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        time.sleep(0.3)
        data = json.dumps(body("chat")).encode()
        head = f"x-api-key: {session.token}\r\ncontent-length: {len(data)}\r\n\r\n".encode()
        with socket.socket(socket.AF_UNIX) as mine:
            mine.settimeout(10)
            mine.connect(str(path))
            mine.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + head + data)
            assert mine.recv(100).startswith(b"HTTP/1.1 200 OK")
        holder.kill()


def test_connections_that_this_process_carries_are_their_sessions_own(
    server: ModelServer, gateways: Gateways, tmp_path: Path
) -> None:
    """It carries those of all sandboxes whose engines share no folder with it."""
    gateway = gateways(server)
    with contextlib.ExitStack() as stack:
        for number in range(3):
            path = tmp_path / f"{number}"
            session, _ = opened(gateway, socket=path)
            for _ in range(_MAX_CONNECTIONS - 10):
                carried = stack.enter_context(socket.socket(socket.AF_UNIX))
                carried.connect(str(path))
            time.sleep(0.3)
            data = json.dumps(body("chat")).encode()
            head = f"x-api-key: {session.token}\r\ncontent-length: {len(data)}\r\n\r\n".encode()
            carried.settimeout(10)
            carried.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + head + data)
            assert carried.recv(100).startswith(b"HTTP/1.1 200 OK")


@pytest.fixture(params=["docker", "bubblewrap"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    request.getfixturevalue("docker_engine" if request.param == "docker" else request.param)
    (tmp_path / "program").mkdir()
    shutil.copy(SUPPORT / "installed_program.py", tmp_path / "program")
    (tmp_path / "mine.yaml").write_text(RECIPE)
    made = World(request.param, "installed:mine.yaml", {"model": "m"}, tmp_path)
    yield made
    made.close()


# Asks with its own token and with that of an episode that is over, on each socket that it finds.
NEIGHBOUR = r"""
import glob, json, os, socket
data = json.dumps({"model": "m", "messages": [{"role": "user", "content": "stolen"}]}).encode()
seen = []
for path in sorted(glob.glob("/opt/intercode/gateway/*")):
    for token in (os.environ["OPENAI_API_KEY"], "sk-real-0123456789abcdef", "sk-intercode-x"):
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(5)
        try:
            one.connect(path)
            head = f"x-api-key: {token}\r\ncontent-length: {len(data)}\r\n\r\n".encode()
            one.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + head + data)
            seen.append(one.recv(20).decode()[9:12])
        except OSError as error:
            seen.append(type(error).__name__)
print("SEEN", *seen)
try:
    os.unlink(path)
except OSError as error:
    print(error.strerror)
"""


def test_an_installed_agent_at_its_neighbours_sockets(gateways: Gateways, world: World) -> None:
    """It is served on its own socket, with its own token, and nowhere else."""
    # A neighbour that is in the middle of its episode.
    shared = next(Path(here) for here, there in world.factory.readonly if "gateway" in there)
    gateway = gateways(world.server)
    neighbour, _ = opened(gateway, socket=shared / "0000")
    script = NEIGHBOUR.replace("'", '"')
    record = world.play(Command(f"python3 - <<'E'\n{script}\nE\necho hi >x"), "done")
    assert record.outcome == "solved", record.reason
    seen = record.turns[0].observation.partition("SEEN ")[2].splitlines()[0].split()
    assert "401" in seen[:3]
    assert not {"200"} & set(seen[:3])  # the neighbour's is the first by its name
    assert seen.count("200") == 1
    assert neighbour.exchanges == []
    assert "Read-only file system" in record.turns[0].observation
    assert record.left_behind == ()


def test_an_agent_that_floods_is_its_own_loss(world: World) -> None:
    flood = "import os, threading, urllib.request\n" + (
        "def ask():\n"
        "    for _ in range(20):\n"
        "        try:\n"
        "            urllib.request.urlopen(os.environ['OPENAI_BASE_URL'] + '/models').read()\n"
        "        except OSError:\n"
        "            pass\n"
        "threads = [threading.Thread(target=ask) for _ in range(40)]\n"
        "[each.start() for each in threads]\n[each.join() for each in threads]\n"
    )
    record = world.play(Command(f"python3 - <<'E'\n{flood}\nE\necho hi >x"), "done")
    assert record.outcome == "solved", record.reason
    assert record.usage.requests == 2
    assert len(record.log) + sum(len(turn.log) for turn in record.turns) < 50_000
