"""Recordings of the real programs are stable: ten replays, ten equal results, and no model."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import ImageSource, Task
from pytest_intercode.environments.project.fields import ProjectFields
from pytest_intercode.errors import AgentLoadError
from pytest_intercode.gateway.masking import Masks
from pytest_intercode.projects.copying import WORKDIR, copy_folder
from pytest_intercode.projects.recordings import RecordingHead, open_recording, recording_path
from pytest_intercode.system.files import bundled_folder
from tests.support.installed import KEY, World
from tests.support.model_server import Command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # of opencode, a run takes 20 s

NODE = "test_rules.py::test_it[agent]"
REPLAYS = 10
# What an environment says of itself, and what changes from run to run.
SCRIPT = (
    Command("date; pwd; ls -la; git log -1; git status --short", thought="I look around."),
    Command("cat AGENTS.md; time sleep 0.01; mktemp -d; mktemp", thought="I read."),
    Command("python3 -c 'print(object())'; sleep 0 & wait; uname -sr; echo $PPID >/dev/null"),
    Command("echo hi >x; git add x; git commit -qm 'Add x'; git log -1 --format=%H"),
    Command("git diff HEAD~1; git show --stat HEAD; cat x"),
    "I have written x.",
)


def _task(folder: Path, query: str) -> Task:
    folder.mkdir()
    (folder / "AGENTS.md").write_text("Write files with echo.\n")
    (folder / "a.py").write_text("a = 1\n")
    copy = copy_folder(folder)
    return Task(
        id="t",
        suite="s",
        dataset="",
        env="project",
        query=query,
        gold=(),
        fields=ProjectFields(commit=copy.commit),
        image=ImageSource(bundled_folder("dockerfiles") / "bash.Dockerfile", layers=(copy.layer,)),
        workdir=WORKDIR,
        max_turns=20,
        action_timeout=60.0,
    )


@pytest.fixture(scope="module", params=["codex", "claude", "opencode"])
def world(
    request: pytest.FixtureRequest, bubblewrap: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("preset")
    try:
        made = World("bubblewrap", str(request.param), {"model": "gpt-5"}, folder)
    except AgentLoadError as error:
        pytest.skip(f"its packages cannot be had here: {error}")
    yield made
    made.close()


def _result(record: EpisodeRecord) -> Any:
    actions = [turn.action for turn in record.turns]
    state = {**record.state["project"], "commits": len(record.state["project"]["commits"])}
    return record.outcome, record.reason, actions, record.usage, state, record.state["message"]


def test_ten_replays_are_equal(world: World, tmp_path: Path) -> None:
    path = recording_path(NODE, tmp_path / "test_rules.py")
    task = _task(tmp_path / "project", "Write hi to x, and commit it.")
    head = RecordingHead.of_item(NODE, task.query, agent_version=world.factory.version)
    masks = Masks.of_machine([KEY])
    item = open_recording("missing", path, head, reaches_models=True, masks=masks)
    began = time.monotonic()
    first = world.play_task(task, *SCRIPT, recording=item, timeout=120)
    live = time.monotonic() - began
    assert first.outcome == "failed", first.reason  # until a test has passed
    assert first.state["project"]["created"] == ("x",)
    assert [turn.action for turn in first.turns][: len(SCRIPT) - 1] == [
        step.command for step in SCRIPT if isinstance(step, Command)
    ]
    assert item.save(first)
    asked = len(world.server.requests)
    seconds = []
    for _ in range(REPLAYS):
        item = open_recording("none", path, head, reaches_models=False, masks=masks)
        began = time.monotonic()
        record = world.play_task(task, recording=item, timeout=120)
        seconds.append(time.monotonic() - began)
        assert _result(record) == _result(first), record.reason
    assert len(world.server.requests) == asked
    print(
        f"{world.agent}: live {live:.2f} s, replayed {sorted(seconds)[len(seconds) // 2]:.2f} s, "
        f"{path.stat().st_size / 1024:.0f} KiB"
    )
