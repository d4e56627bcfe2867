"""Agents in a sandbox: what went through the gateway is replayed, what was refused is shown."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_intercode.core.tokens import token_sequences
from tests.integration.agents.test_installed import RECIPE
from tests.support.installed import KEY, SUPPORT, World
from tests.support.model_server import Command

# Asks the gateway without a token, as a program would that takes it for a proxy.
STRAY = """python3 - <<'E'
import os, urllib.error, urllib.request
base = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")
os.environ["http_proxy"] = base
try:
    urllib.request.urlopen("http://example.org/secret")
except urllib.error.HTTPError as error:
    print("refused", error.code)
E"""


@pytest.mark.parametrize("backend", ["docker", "bubblewrap"])
def test_an_episode_is_replayed_without_a_model(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    request.getfixturevalue("docker_engine" if backend == "docker" else backend)
    (tmp_path / "program").mkdir()
    shutil.copy(SUPPORT / "installed_program.py", tmp_path / "program")
    (tmp_path / "mine.yaml").write_text(RECIPE)
    recorded = tmp_path / "recorded"
    agent = ("installed:mine.yaml", {"model": "m"}, tmp_path)
    script = (Command("echo hi >x", thought="I write."), Command(STRAY), "Done.")
    world = World(backend, *agent, record=recorded, tokens="vllm")
    try:
        first = world.play(*script)
    finally:
        world.close()
    assert (first.outcome, first.reason) == ("solved", "")
    assert first.turns[1].observation == "refused 401\n"
    shown = "[gateway: GET http://example.org/secret: no token of an episode]"
    assert shown in "".join([first.log, *(turn.log for turn in first.turns)])
    assert len(list(recorded.glob("*/*.json"))) == 3
    assert not [path for path in recorded.glob("*/*") if KEY in path.read_text()]

    assert [turn.model_calls for turn in first.turns] == [(0,), (1,), (2,)]
    [*_, last] = token_sequences(first.model_calls)
    assert last.calls[-1] == 2

    world = World(backend, *agent, replay=recorded, tokens="vllm")
    try:
        world.server.__exit__(None, None, None)  # there is no model any more
        again = world.play()
    finally:
        world.provider.close()
        world.factory.close()
    for name in ("outcome", "reward", "usage", "model_calls"):
        assert getattr(again, name) == getattr(first, name)
    told = [
        [(turn.action, turn.observation, turn.thought, turn.usage) for turn in record.turns]
        for record in (first, again)
    ]
    assert told[0] == told[1]
