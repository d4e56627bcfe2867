"""``pytest-intercode doctor`` on a simulated Mac: what is there, and what is Linux's."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.portable.mac import Mac


def _report(mac: Mac, folder: Path, *arguments: str) -> tuple[int, dict[str, str]]:
    command = ("-m", "pytest_intercode", "doctor", "--json", "--", *arguments)
    result = mac.run(mac.python, *command, folder=folder)
    facts = json.loads(result.stdout)["facts"]
    return result.returncode, {fact["subject"]: f"{fact['state']} {fact['text']}" for fact in facts}


def test_an_engine_in_a_virtual_machine(near_mac: Mac, project: Path) -> None:
    status, facts = _report(near_mac, project, "--intercode-env=bash", "--intercode-agent=oracle")
    assert status == 0, facts
    assert "Darwin" in facts["versions"]
    assert facts["docker"].startswith("ok ")
    assert facts["docker machine"].startswith("ok another or a virtual machine: ")
    assert "docker disk" not in facts  # that of another machine
    assert facts["bubblewrap"] == "note bubblewrap runs on Linux only; use Docker here"


def test_what_is_lacking(near_mac: Mac, project: Path) -> None:
    status, facts = _report(near_mac, project, "--intercode-sandbox=bubblewrap")
    assert status == 1
    assert facts["bubblewrap"] == "problem bubblewrap runs on Linux only; use Docker here"
