"""What agents and suites say drives neither the terminal nor the CI server that reads the log."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.conftest import PRETEND
from tests.support.ci_log import HOSTILE, commands

AGENT = f"""
import asyncio, logging, os, sys, warnings

HOSTILE = {HOSTILE!r}


class Loud:
    def __init__(self, fail=""):
        self.fail = fail

    def reset(self, task):
        self.turns = 0

    def act(self, observation):
        self.turns += 1
        print(HOSTILE)
        for piece in ("#", "#[", "error]", "in pieces\\n", " :", ":", "error::in pieces\\n"):
            sys.stdout.write(piece)
        sys.stderr.write(HOSTILE)
        logging.getLogger("agent").warning("said %s", HOSTILE)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            logging.getLogger("agent").exception(HOSTILE)
        warnings.warn(HOSTILE.replace("\\udc80", ""))
        if self.turns > 1 and self.fail:
            raise RuntimeError(HOSTILE)
        return HOSTILE if self.turns == 1 else "submit"
"""

WORDS = HOSTILE.replace("\udc80", "")  # YAML has no lone surrogates
SUITE = {
    "env": "bash",
    "defaults": {"hardness": "h\n::error::\x1b ##[error] <b>|*"},
    "tasks": [
        {"id": "plain", "query": WORDS, "gold": "true"},
        {"id": "other", "query": "do it", "gold": "true"},
        {"id": "skipped", "query": "do it", "gold": "true", "skip": f"why: {WORDS}"},
        {"id": "xfailed", "query": "do it", "gold": "true", "xfail": f"why: {WORDS}"},
    ],
}

# A test of the user's own, whose failure quotes the agent.
OWN = f"""
import pytest


@pytest.mark.intercode(suite="suite.yaml", ids=["plain"])
def test_own(intercode_task, intercode_environment):
    said = {HOSTILE!r}
    if said:
        raise AssertionError(said)
"""


@pytest.fixture
def hostile(pytester: pytest.Pytester) -> Path:
    (pytester.path / "conftest.py").write_text(PRETEND)
    (pytester.path / "agents.py").write_text(AGENT)
    (pytester.path / "suite.yaml").write_text(json.dumps(SUITE))
    (pytester.path / "test_own.py").write_text(OWN)
    return pytester.path


def _run(*options: str, agent: str = "Loud") -> str:
    """Run in a process of its own, and return all that it prints, byte for byte."""
    words = [sys.executable, "-m", "pytest", "suite.yaml", f"--intercode-agent=agents.py:{agent}"]
    done = subprocess.run(
        [*words, "-v", "-rA", "-p", "no:cacheprovider", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    return done.stdout.decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--tb=long", "test_own.py", "--showlocals"), id="captured"),
        pytest.param(("--tb=native", "test_own.py", "-o", "log_cli=true"), id="native-live-log"),
        pytest.param(("--intercode-concurrency=2",), id="concurrent"),
        pytest.param(("-s", "-o", "log_cli=true"), id="not-captured"),
        pytest.param(("-s", "--intercode-concurrency=2"), id="concurrent-not-captured"),
        pytest.param(("-n1",), id="xdist"),
    ],
)
def test_no_line_of_the_log_is_a_command(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    fails = "--intercode-agent-arg=fail=yes"
    log = _run(*options, fails, "--junitxml=junit.xml", "-o", "junit_logging=all")
    assert commands(log) == []
    assert r":\x3aerror::at the end" in log  # it is shown, and harmless
    assert r"##\x5berror]in pieces" in log
    assert "Internal" not in log.replace("_", "")
    junit = ElementTree.parse("junit.xml").getroot()
    assert len(junit.findall(".//testcase")) >= 4
    texts = [text for each in junit.iter() for text in (each.text, *each.attrib.values()) if text]
    assert commands("\n".join(texts)) == []
    summary = Path("summary.md").read_text()
    assert commands(summary) == []
    assert "<b>" not in summary.replace(r"\<b", "")


def test_no_key_is_printed(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in what an agent warns of, nor in the command by which an interrupted run goes on."""
    key = "my-own-secret-key-0123456789"
    monkeypatch.setenv("MY_API_KEY", key)
    (hostile / "agents.py").write_text(
        "import os, warnings\n\n\ndef act(observation):\n"
        "    warnings.warn(f'I have {os.environ[\"MY_API_KEY\"]}')\n    return 'submit'\n"
    )
    with (hostile / "conftest.py").open("a") as file:
        file.write("\n\ndef pytest_runtest_logfinish():\n    raise KeyboardInterrupt\n")
    log = _run("--intercode-results=r.jsonl", f"-k=not {key}", agent="act")
    assert "UserWarning: I have intercode-masked-key" in log
    assert "to continue this run: pytest" in log
    assert key not in log


@pytest.mark.parametrize("error", ["AgentError", "RuntimeError"])
@pytest.mark.parametrize("separator", ["", " "])
def test_no_part_of_a_key_is_left_where_a_text_is_shortened(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, error: str, separator: str
) -> None:
    key = "my-own-secret-key-0123456789"
    monkeypatch.setenv("MY_API_KEY", key)
    (hostile / "agents.py").write_text(
        "import os\n\nfrom pytest_intercode import AgentError\n\n\ndef act(observation):\n"
        f"    raise {error}({separator!r}.join([os.environ['MY_API_KEY']] * 300))\n"
    )
    log = _run("--intercode-results=r.jsonl", "-rA", "--junitxml=junit.xml", agent="act")
    assert "agent error after 0/10 turns" in log
    for text in (log, Path("r.jsonl").read_text(), Path("junit.xml").read_text()):
        assert key[:9] not in text
        assert key[-9:] not in text
