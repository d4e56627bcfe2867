"""docs/tau2-bench.md: its agent and its commands, on a domain of our own, and what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import results
from tests.docs.shell import run
from tests.support.model_server import ModelServer, Request
from tests.support.tau2_library import write_library

pytest.importorskip("aiohttp")
pytest.importorskip("openai")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tau2-bench.md").read_text(encoding="utf-8")
[AGENT] = re.findall(r"^```python agent.py\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
[COMMANDS] = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def customer_says(request: Request) -> str:
    spoken = sum(message["role"] == "assistant" for message in request.body["messages"])
    return ("May I have Dune for longer?", "###STOP###")[spoken]


@pytest.mark.slow
@pytest.mark.usefixtures("needs_sandboxes")
def test_the_agent_of_the_page_serves_a_customer(tmp_path: Path) -> None:
    install, fetch, _, command = COMMANDS.splitlines()
    assert (install.split()[0], fetch) == ("pip", "pytest-intercode fetch tau2")
    suite = write_library(tmp_path).name
    (tmp_path / "agent.py").write_text(AGENT)
    command = command.replace("--intercode-dataset=tau2-retail", f"{suite} -k renew")
    command = re.sub(r"--intercode-agent=.*", "--intercode-agent=agent.py:Agent", command)
    options = "-p no:cacheprovider --intercode-results=r.jsonl"
    with ModelServer(customer_says) as server:
        address = f"{server.url}/v1"
        result = run(command, tmp_path, options, OPENAI_API_KEY="sk-x", OPENAI_BASE_URL=address)
    assert result.returncode == 0, result.stdout + result.stderr
    [row] = results(tmp_path / "r.jsonl")
    assert row["outcome"] == "solved"


def test_it_is_named_in_the_docs() -> None:
    for name in ("CHANGELOG.md", "docs/datasets.md"):
        assert "tau2-bench.md" in (ROOT / name).read_text(encoding="utf-8"), name
