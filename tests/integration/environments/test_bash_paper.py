"""Episodes of the bash environment under the paper profile: what one leaves for the next."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import pytest

from pytest_intercode.core.task import FileSpec, ImageSource, Task
from pytest_intercode.environments.bash.paper import PaperBashEnvironment
from pytest_intercode.environments.bash.repository import IMAGE_AGE
from pytest_intercode.sandboxes.choice import Choice
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.support import puzzles

provider, quick_provider = puzzles.provider, puzzles.quick_provider  # fixtures

FILES = {
    "/work/plain.txt": FileSpec("file", b"plain\n"),
    "/work/secret.txt": FileSpec("file", b"secret\n", mode=0o400),
    "/made.sh": FileSpec("file", b"#!/bin/sh\n", mode=0o755),
}


def play(provider: SandboxProvider, dataset: str, *actions: str, gold: str) -> PaperBashEnvironment:
    """Return an environment whose episode is over, graded after every action."""
    environment = PaperBashEnvironment(provider, feedback="reward")
    task = Task("t", "Do it.", tuple(gold.split(" THEN ")), "bash", "s", dataset, files=FILES)
    try:
        environment.reset(task=task)
        for action in actions:
            environment.step(action)
    finally:
        environment.close()
    return environment


def said(environment: PaperBashEnvironment, side: str) -> str:
    """Return the last output of the agent or of gold."""
    output: str = environment.end_state()[side]["output"]
    return output


LOOK = "stat -c '%a %Y %n' /work/secret.txt /work/plain.txt"


def looks(text: str) -> dict[str, tuple[str, float]]:
    """Return modes, and ages in seconds, by path."""
    rows = (line.split(" ") for line in text.splitlines())
    return {path: (mode, time.time() - int(when)) for mode, when, path in rows}


def test_what_git_brings_back_is_young_and_has_gits_mode(provider: SandboxProvider) -> None:
    """On the side that changed it, from the next episode on; all else is as old as the image."""
    dataset = "bring-back"
    first = play(provider, dataset, LOOK, gold="rm /work/secret.txt")
    before = looks(said(first, "agent"))
    assert [mode for mode, _ in before.values()] == ["400", "644"]
    assert all(IMAGE_AGE <= age < IMAGE_AGE + 600 for _, age in before.values())
    second = play(provider, dataset, LOOK, gold=LOOK)
    agents, golds = looks(said(second, "agent")), looks(said(second, "gold"))
    assert agents["/work/secret.txt"][0] == "400"
    assert golds["/work/secret.txt"][0] == "644"
    assert golds["/work/secret.txt"][1] < 300
    for age in (agents["/work/secret.txt"][1], agents["/work/plain.txt"][1]):
        assert age >= IMAGE_AGE
    assert golds["/work/plain.txt"][1] >= IMAGE_AGE
    other = play(provider, "another", LOOK, gold="true")
    assert looks(said(other, "agent"))["/work/secret.txt"][0] == "400"
    assert second.turns[0].reward is not None
    assert second.turns[0].reward < 1.0


def test_a_reset_brings_back_what_was_changed_and_nothing_else(
    quick_provider: SandboxProvider,
) -> None:
    """Gold is run anew after each action: its second run finds all but one file as old as ever."""
    count = "find /work /made.sh -type f -mmin -60 | wc -l"
    gold = f"{count} THEN rm -f /work/plain.txt"
    played = play(quick_provider, "reset", "true", "submit", gold=gold)
    assert said(played, "gold").strip() == "1"
    again = play(quick_provider, "reset", count, gold=gold)
    assert (said(again, "gold").strip(), said(again, "agent").strip()) == ("1", "0")


def test_times_are_whole_seconds_until_a_reset(quick_provider: SandboxProvider) -> None:
    """As in the layers of an image: how many digits tasks see depends on it."""
    look = "find /work -type f -printf '%T@ %p\\n'"
    played = play(quick_provider, "digits", look, gold="true")
    assert said(played, "agent").count(".0000000000 ") == 2


def test_a_pattern_without_quotes_finds_the_script_that_made_the_files(
    quick_provider: SandboxProvider,
) -> None:
    """Double quotes in an action end InterCode's own."""
    played = play(quick_provider, "quotes", 'echo "*.sh"', gold="cd /work THEN echo *.txt")
    assert said(played, "agent") == "made.sh\n"
    assert said(played, "gold") == "plain.txt secret.txt\n"  # in one process, as commands of one


class _Provider(SandboxProvider):
    """Takes the names of Dockerfiles for images, and starts nothing."""

    def image(self, source: ImageSource) -> str:
        return str(source.dockerfile)


@pytest.mark.parametrize(
    ("backend", "name", "expected"),
    [
        ("docker", "one", "one-paper"),
        ("docker", "two", "two"),
        ("bubblewrap", "one", "one"),
    ],
)
def test_the_profile_may_have_an_image_of_its_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: Literal["docker", "bubblewrap"],
    name: str,
    expected: str,
) -> None:
    for each in ("one", "one-paper", "two"):
        (tmp_path / f"{each}.Dockerfile").touch()
    monkeypatch.setattr(_Provider, "choice", Choice(backend, ""))
    provider = _Provider()
    image = ImageSource(dockerfile=tmp_path / f"{name}.Dockerfile")
    task = Task("t", "Do it.", ("true",), "bash", "s", "d", image=image)
    spec = PaperBashEnvironment.spec(task, provider)
    assert spec.image == str(tmp_path / f"{expected}.Dockerfile")
