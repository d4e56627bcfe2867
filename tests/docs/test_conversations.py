"""docs/conversations.md: its suites, its agent and its commands work as they are shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_intercode.suites.conversations import UserModel
from tests.conftest import results
from tests.docs.shell import run
from tests.support.model_server import ModelServer, Request

pytest.importorskip("aiohttp")
pytest.importorskip("openai")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "conversations.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```(?:yaml|python) (\S+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
REPLIES, SIMULATED = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
OPTIONS = "-p no:cacheprovider --intercode-results=r.jsonl"


def user_says(request: Request) -> str:
    spoken = sum(message["role"] == "assistant" for message in request.body["messages"])
    return ("Keep 2.", "No. GOODBYE")[spoken]


@pytest.mark.slow
@pytest.mark.usefixtures("needs_sandboxes")
def test_the_page(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    done = run(REPLIES, tmp_path, OPTIONS)
    assert done.returncode == 0, done.stdout + done.stderr
    install, key, record, replay = SIMULATED.splitlines()
    assert install.startswith("pip install ")
    assert key.startswith("export OPENAI_API_KEY=")
    (tmp_path / "r.jsonl").unlink()
    with ModelServer(user_says) as server:
        address = f"{server.url}/v1"
        done = run(record, tmp_path, OPTIONS, OPENAI_API_KEY="sk-x", OPENAI_BASE_URL=address)
        assert done.returncode == 0, done.stdout + done.stderr
        assert {request.model for request in server.requests} == {"small"}
    [row] = results(tmp_path / "r.jsonl")
    (tmp_path / "r.jsonl").unlink()
    done = run(replay, tmp_path, OPTIONS, OPENAI_API_KEY="", OPENAI_BASE_URL="")
    assert done.returncode == 0, done.stdout + done.stderr
    [replayed] = results(tmp_path / "r.jsonl")
    assert replayed["dialogue"] == row["dialogue"]
    assert [said["reply"] for said in row["dialogue"]] == ["Keep 2.", "No. GOODBYE"]
    assert row["user_usage"]["requests"] == 2


def test_every_field_is_described() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert set(UserModel.model_fields) <= set(rows)


def test_it_is_named_in_the_docs() -> None:
    for name in ("CHANGELOG.md", "README.md", "docs/suites.md", "docs/agents.md"):
        assert "conversations.md" in (ROOT / name).read_text(encoding="utf-8"), name
