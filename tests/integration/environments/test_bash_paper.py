"""Episodes of the bash environment under the paper profile: what one leaves for the next."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_intercode.core.task import FileSpec, ImageSource, Task
from pytest_intercode.environments.bash.paper import PaperBashEnvironment
from pytest_intercode.environments.bash.repository import IMAGE_AGE
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.support import puzzles

provider, quick_provider = puzzles.provider, puzzles.quick_provider  # fixtures

FILES = {
    "/work/plain.txt": FileSpec("file", b"plain\n"),
    "/work/secret.txt": FileSpec("file", b"secret\n", mode=0o400),
    "/made.sh": FileSpec("file", b"#!/bin/sh\n", mode=0o755),
}


def play(
    provider: SandboxProvider,
    dataset: str,
    *actions: str,
    gold: str,
    files: Mapping[str, FileSpec] = FILES,
) -> PaperBashEnvironment:
    """Return an environment whose episode is over, graded after every action."""
    environment = PaperBashEnvironment(provider, feedback="reward")
    task = Task("t", "Do it.", tuple(gold.split(" THEN ")), "bash", "s", dataset, files=files)
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


def test_a_repository_is_made_once_and_copied(provider: SandboxProvider) -> None:
    """One side has the one that was made, the other its copy, and nothing tells them apart."""
    state = "-type d -printf '%m %p\\n' -o -printf '%y %m %U %T@ %A@ %l %p\\n'"
    look = f"find /work /made.sh -name lib -prune -o {state}; git log --format=%H; "
    look += "git status --short; git fsck 2>&1; ls -d /tmp /work/empty; "
    look += "stat -c '%a %Y %n' /.gitignore /root/.gitconfig /.git/HEAD /work/lib/ignored.txt"
    files = {
        **FILES,
        "/work/empty": FileSpec("directory"),
        "/work/lib/ignored.txt": FileSpec("file", b"ignored\n"),
        "/work/link": FileSpec("link", target="plain.txt"),
    }
    played = play(provider, "copies", look, gold=look, files=files)
    assert said(played, "agent") == said(played, "gold")
    assert played.final is not None
    assert played.final.value == 1.0
    for part in ("400 0 ", "/work/lib/ignored.txt", "plain.txt /work/link", "/tmp': No such"):
        assert part in said(played, "agent")
    assert "??" not in said(played, "agent")


ODD = (
    "true",
    "mkdir /work/empty",
    "touch /work/plain.txt; ls /work",
    "true",
    # Another content of the same size and time.
    "cp -p /work/plain.txt /k; echo PLAIN >/work/plain.txt; touch -r /k /work/plain.txt; rm /k",
    "echo plain >/work/plain.txt",
    "true",
    "git rm -q --cached /made.sh; git status --short",
    "git reset -q --hard; rmdir /work/empty",
    "chmod +x /work/plain.txt; mv /made.sh /moved.sh",
    "(until [ -e /go ]; do sleep 0.02; done; echo late >/work/late.txt) >/dev/null 2>&1 &",
    "touch /go; sleep 0.1",
)
GOLDS = (
    "ls -AR /work; git status --short; mkdir -p /work/new/deep",
    "cat /work/secret.txt; echo more >>/work/secret.txt; touch /work/plain.txt; ls -A /; "
    "git rm -q --cached /made.sh; rm -r /work/e*; mkdir -p /work/late; echo x >/late.txt",
)


@pytest.mark.parametrize("gold", GOLDS)
def test_what_git_is_not_asked_again_is_what_it_would_say(
    quick_provider: SandboxProvider, monkeypatch: pytest.MonkeyPatch, gold: str
) -> None:
    """Where the disk says that nothing has changed, git is run for neither status nor reset."""
    asked: list[str] = []
    admin = AttachedSandbox.admin

    def noted(sandbox: AttachedSandbox, command: str, timeout: float) -> tuple[int, bytes]:
        asked.append(command)
        done: tuple[int, bytes] = admin(sandbox, command, timeout)
        return done

    def played(dataset: str) -> tuple[list[tuple[str, str, float, object]], int]:
        asked.clear()
        environment = PaperBashEnvironment(quick_provider, feedback="reward", max_turns=99)
        environment.reset(
            task=Task("t", "Do it.", (gold,), "bash", "s", dataset + gold, files=FILES)
        )
        seen: list[tuple[str, str, float, object]] = []
        for action in ODD:
            observation, reward, *_ = environment.step(action)
            seen.append((action, str(observation), reward, environment.end_state()))
            if environment.over:
                break
        environment.close()
        return seen, sum("git status" in command for command in asked)

    monkeypatch.setattr(AttachedSandbox, "admin", noted)
    quick, few = played("quick")
    monkeypatch.setattr(AttachedSandbox, "stamps", lambda sandbox: None)
    slow, all_ = played("slow")
    assert quick == slow
    assert all_ >= 2 * len(slow)
    assert few < all_ or os.geteuid() != 0


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
    backend: str,
    name: str,
    expected: str,
) -> None:
    for each in ("one", "one-paper", "two"):
        (tmp_path / f"{each}.Dockerfile").touch()
    provider = _Provider(SandboxSettings(backend))
    image = ImageSource(dockerfile=tmp_path / f"{name}.Dockerfile")
    task = Task("t", "Do it.", ("true",), "bash", "s", "d", image=image)
    spec = PaperBashEnvironment.spec(task, provider)
    assert spec.image == str(tmp_path / f"{expected}.Dockerfile")


@pytest.mark.parametrize("action", ['echo "', "echo a\0b", "echo \ud800"])
def test_what_no_process_can_be_given_is_malformed(
    quick_provider: SandboxProvider, action: str
) -> None:
    with contextlib.closing(PaperBashEnvironment(quick_provider)) as environment:
        environment.reset(task=Task("t", "Do it.", ("ls",), "bash", "s", "malformed"))
        observation, *_, facts = environment.step(action)
        assert (observation, facts["executed"]) == ("Malformed command", False)
        assert environment.step("echo y")[0] == "y\n"
