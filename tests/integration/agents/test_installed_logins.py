"""Claude Code and Codex with a login: the real programs in a sandbox, which see nothing of it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from pytest_intercode.errors import AgentLoadError
from tests.support.installed import World
from tests.support.model_server import Command, Step
from tests.support.token_server import ACCESS, REFRESH, TokenServer, claude_login, codex_login

# What an agent would look for: files, variables, memory of its own processes, the gateway's words.
_SEARCH = """\
env; cat ~/.claude/.credentials.json ~/.codex/auth.json "$CLAUDE_CONFIG_DIR"/.cred* \
"$CODEX_HOME"/auth.json 2>&1; grep -rsl 'mark7f[3]' / --include=*.json --include=*.toml |
head; echo hi >x"""


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["claude", "codex"])
def test_a_login_serves_the_real_program_and_stays_outside(
    preset: str, bubblewrap: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    login = claude_login if preset == "claude" else codex_login
    with TokenServer() as tokens:
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "home"))
        monkeypatch.setenv("CODEX_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("INTERCODE_CLAUDE_TOKEN_URL", tokens.url)
        monkeypatch.setenv("CODEX_REFRESH_TOKEN_URL_OVERRIDE", tokens.url)
        path = login(tmp_path / "home", seconds=-10)
        first_file = path.read_text()
        try:
            world = World(
                *("bubblewrap", preset, {"model": "gpt-5"}, tmp_path),
                logins=(preset,),
                record=tmp_path / "recorded",
            )
        except AgentLoadError as error:
            pytest.skip(f"its packages cannot be had here: {error}")
        try:
            record = world.play(Command(_SEARCH), "done")
            requests = list(world.server.requests)
            limit = Step(status=429, text="limit", headers={"retry-after": "7200"})
            limited = world.play(limit)
            assert len(world.server.requests) == len(requests) + 1
        finally:
            world.close()
    assert (record.outcome, record.reason) == ("solved", "")
    assert (record.usage.cost, record.usage.requests) == (None, len(requests))
    assert record.usage.input_tokens == 100 * len(requests)
    assert len(tokens.requests) == 1
    assert all("renewed-access" in request.headers["authorization"] for request in requests)
    assert (limited.outcome, "used up for another 2 h 0 min" in limited.reason) == (
        *("agent-error", True),
    )
    assert "renewed-refresh" in path.read_text()
    texts = [repr(record), repr(limited), *(request.text for request in requests)]
    texts += [file.read_text() for file in (tmp_path / "recorded").glob("*/*.json")]
    secrets = re.findall(r"eyJ[\w.-]+", first_file)
    for secret in (*secrets, ACCESS, REFRESH, "renewed-access", "mark7f3", "account-of-the-test"):
        contexts = [
            text[max(0, text.find(secret) - 80) :][:200] for text in texts if secret in text
        ]
        assert not contexts, secret
