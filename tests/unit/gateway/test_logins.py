"""Logins: whose files they are, when they are renewed, by one process at a time."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.logins import LOGINS, Login, LoginError, login_of
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.gateway.upstream import seconds_until_reset
from tests.support.token_server import (
    ACCESS,
    REFRESH,
    TokenServer,
    claude_login,
    codex_login,
    web_token,
)


def _claude(path: Path, server: TokenServer | None = None) -> Login:
    return Login(LOGINS["claude"], path, server.url if server else "http://127.0.0.1:9/")


def _codex(path: Path, server: TokenServer | None = None) -> Login:
    return Login(LOGINS["codex"], path, server.url if server else "http://127.0.0.1:9/")


def test_a_token_that_is_good_is_taken_as_it_is(tmp_path: Path) -> None:
    login = _claude(claude_login(tmp_path))
    assert login.headers() == {
        "authorization": f"Bearer {ACCESS}",
        "anthropic-beta": "oauth-2025-04-20",
    }
    assert login.secrets == (ACCESS, REFRESH)
    assert login.describe().startswith("its token is valid until 20")
    headers = _codex(codex_login(tmp_path)).headers()
    assert headers.pop("authorization").startswith("Bearer eyJ")
    assert headers == {"originator": "codex_exec", "chatgpt-account-id": "account-of-the-test"}


def test_claude_codes_token_is_renewed_and_the_file_keeps_the_rest(tmp_path: Path) -> None:
    path = claude_login(tmp_path, seconds=200)
    with TokenServer(scope="user:inference") as server:
        headers = _claude(path, server).headers()
        assert _claude(path, server).headers() == headers  # from the file, without a request
    assert headers["authorization"] == "Bearer sk-ant-oat01-renewed-access-0000000001"
    assert server.requests == [
        {
            "grant_type": "refresh_token",
            "refresh_token": REFRESH,
            "client_id": LOGINS["claude"].client_id,
            "scope": "user:inference user:profile",
        }
    ]
    content = json.loads(path.read_text())
    login = content["claudeAiOauth"]
    assert content["mcpOAuth"] == {"x": 1}
    assert login["refreshToken"] == "sk-ant-ort01-renewed-refresh-0000000001"
    assert 28_000 < login["expiresAt"] / 1000 - time.time() <= 28_800
    assert (login["scopes"], login["subscriptionType"]) == (["user:inference"], "max")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]  # no lock, no copy
    assert not tmp_path.with_name(f"{tmp_path.name}.lock").exists()


@pytest.mark.parametrize(
    ("seconds", "more"),
    [(-5, {}), (3600, {"last_refresh": "2026-01-02T03:04:05Z"})],
    ids=["ended", "old"],
)
def test_codexs_token_is_renewed_at_its_end_and_by_its_age(
    seconds: float, more: dict[str, Any], tmp_path: Path
) -> None:
    path = codex_login(tmp_path, seconds, **more)
    path.chmod(0o400)
    new_token = web_token(7200, "new")
    with TokenServer(access_token=new_token, id_token=None) as server:
        headers = _codex(path, server).headers()
    assert headers["authorization"] == f"Bearer {new_token}"
    assert server.requests[0]["client_id"] == "app_EMoamEEZ73f0CkXaXp7hrann"
    content = json.loads(path.read_text())
    assert content["tokens"]["refresh_token"] == "sk-ant-ort01-renewed-refresh-0000000001"
    assert content["tokens"]["account_id"] == "account-of-the-test"
    assert content["tokens"]["id_token"].startswith("eyJ")
    assert content["last_refresh"] > "2026-11"
    assert stat.S_IMODE(path.stat().st_mode) == 0o400


def test_a_token_that_the_server_refuses_is_renewed_before_its_end(tmp_path: Path) -> None:
    path = claude_login(tmp_path)
    with TokenServer() as server:
        login = _claude(path, server)
        refused = login.headers()["authorization"]
        assert login.headers(refused)["authorization"] != refused
        # Another thread's request was refused with the old one, and finds the new one.
        assert login.headers(refused) == login.headers()
        assert len(server.requests) == 1


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    real = claude_login(tmp_path / "store", seconds=1)
    link = tmp_path / ".credentials.json"
    link.symlink_to(real)
    with TokenServer() as server:
        _claude(link, server).headers()
    assert link.is_symlink()
    assert "renewed" in real.read_text()


_ASK = """\
import sys
from pathlib import Path
from pytest_intercode.gateway.logins import LOGINS, Login
print(Login(LOGINS["claude"], Path(sys.argv[1]), sys.argv[2]).headers()["authorization"])
"""


def test_two_processes_and_four_threads_renew_a_token_once(tmp_path: Path) -> None:
    path = claude_login(tmp_path, seconds=-10)
    with TokenServer() as server:
        server.meanwhile = lambda: time.sleep(0.2)  # while the others come
        command = [sys.executable, "-c", _ASK, str(path), server.url]
        children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        login, tokens = _claude(path, server), list[str]()
        threads = [
            threading.Thread(target=lambda: tokens.append(login.headers()["authorization"]))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outputs = [child.communicate()[0].strip() for child in children]
    assert len(server.requests) == 1
    assert {*tokens, *outputs} == {"Bearer sk-ant-oat01-renewed-access-0000000001"}


def test_claude_codes_own_lock_is_waited_for_and_an_old_one_is_not(tmp_path: Path) -> None:
    path = claude_login(tmp_path, seconds=-10)
    lock = tmp_path / ".oauth_refresh.lock"
    lock.mkdir()
    released = threading.Event()

    def release() -> None:  # as Claude Code does it: first the file, then the lock
        claude_login(tmp_path, accessToken="sk-ant-oat01-by-claude-code-itself")
        released.set()
        lock.rmdir()

    timer = threading.Timer(0.2, release)
    timer.start()
    headers = _claude(path).headers()
    timer.join()
    assert released.is_set()
    assert headers["authorization"] == "Bearer sk-ant-oat01-by-claude-code-itself"

    claude_login(tmp_path, seconds=-10)
    lock.mkdir()
    os.utime(lock, (time.time() - 61, time.time() - 61))
    with TokenServer() as server:
        assert "renewed" in _claude(path, server).headers()["authorization"]


def test_who_logs_in_meanwhile_keeps_that_login(tmp_path: Path) -> None:
    path = codex_login(tmp_path, seconds=-10)
    with TokenServer() as server:

        def log_in() -> None:
            path.write_text(path.read_text().replace(REFRESH, "rt-of-a-new-login"))

        server.meanwhile = log_in
        _codex(path, server).headers()
    assert json.loads(path.read_text())["tokens"]["refresh_token"] == "rt-of-a-new-login"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "there is no such file: start `claude` and type /login"),
        ("", "it is not a JSON object"),
        ("[1]", "it is not a JSON object"),
        ("{}", "it has no login: start `claude` and type /login"),
        ('{"claudeAiOauth": null}', "it has no login: start `claude` and type /login"),
        ('{"claudeAiOauth": {"accessToken": ""}}', "it has an invalid token"),
        *(
            (
                f'{{"claudeAiOauth": {{"accessToken": "a", "expiresAt": {time}}}}}',
                "it has an invalid time",
            )
            for time in ("NaN", "1e400", "1e30", '"soon"', "[]")
        ),
        ('{"claudeAiOauth": {"accessToken": "a\\nb: c"}}', "it has an invalid token"),
        (
            '{"claudeAiOauth": {"accessToken": "a", "expiresAt": 1}}',
            "it has expired: start `claude` and type /login",
        ),
    ],
)
def test_a_file_that_is_no_login_is_one_line(
    content: str | None, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / ".credentials.json"
    if content is not None:
        path.write_text(content)
        path.chmod(0o600)
    with pytest.raises(LoginError) as error:
        _claude(path).headers()
    assert str(error.value).startswith(f"the login of Claude Code, {path}: {reason}")
    assert str(error.value).isprintable()


def test_a_file_of_others_is_one_line(tmp_path: Path) -> None:
    path = claude_login(tmp_path)
    path.chmod(0o644)
    with pytest.raises(LoginError, match=r"others may read or write it \(mode 644\): chmod 600 it"):
        _claude(path).headers()
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(LoginError, match="it is not a regular file"):
        _claude(path).headers()
    if os.getuid() == 0:
        path.unlink()
        os.chown(claude_login(tmp_path), 12345, 12345)
        with pytest.raises(LoginError, match="it belongs to another user"):
            _claude(path).headers()


def test_a_key_in_codexs_file_is_not_a_login(tmp_path: Path) -> None:
    path = codex_login(tmp_path, tokens=None, OPENAI_API_KEY="sk-x")
    with pytest.raises(LoginError, match="it has a key instead of a login: set OPENAI_API_KEY"):
        _codex(path).headers()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"status": 400}, "it has expired: start `claude` and type /login"),
        ({"status": 500}, "answered 500"),
        ({"status": 302}, "answered 302"),
        ({"access_token": ""}, "sent no token"),
        ({"expires_in": "soon"}, "sent no token"),
        (None, "cannot be reached: Connection refused"),
    ],
    ids=["refused", "broken", "moved", "empty", "odd", "not-there"],
)
def test_a_renewal_that_fails_leaves_the_file_and_tells_nothing(
    answer: dict[str, Any] | None, reason: str, tmp_path: Path
) -> None:
    path = claude_login(tmp_path, seconds=-10)
    content = path.read_bytes()
    with TokenServer(**(answer or {})) as server, pytest.raises(LoginError) as error:
        _claude(path, None if answer is None else server).headers()
    assert str(error.value).endswith(reason)
    assert not any(secret in str(error.value) for secret in (ACCESS, REFRESH))
    assert path.read_bytes() == content
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


# -- settings


def test_files_are_where_the_programs_have_them(tmp_path: Path) -> None:
    environment = {
        "CLAUDE_CONFIG_DIR": str(tmp_path),
        "CODEX_HOME": str(tmp_path / "c"),
        "CODEX_REFRESH_TOKEN_URL_OVERRIDE": "http://127.0.0.1:1/t",
    }
    assert login_of("claude", environment).path == tmp_path / ".credentials.json"
    assert login_of("codex", environment).path == tmp_path / "c" / "auth.json"
    assert login_of("claude", {}).path == Path.home() / ".claude" / ".credentials.json"
    assert login_of("codex", {}).path == Path.home() / ".codex" / "auth.json"


def test_settings_with_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    for name, message in (
        ("claud", "there is no such login. Allowed: claude and codex. Did you mean 'claude'?"),
        ("claude", f"the login of Claude Code, {tmp_path}/.credentials.json: there is no such"),
    ):
        with pytest.raises(ConfigurationError) as error:
            GatewaySettings(logins=(name,)).check()
        assert str(error.value).startswith(f"--intercode-gateway-login={name}: {message}")
    GatewaySettings(logins=("claude",), offline=True).check()  # nothing is asked
    claude_login(tmp_path)
    codex_login(tmp_path)
    settings = GatewaySettings(logins=("claude", "codex"))
    settings.check()
    assert settings.address("openai", "/v1/responses") == (
        "https://chatgpt.com/backend-api/codex/responses"
    )
    assert settings.configured == ("openai", "anthropic")
    assert settings.reaches_models
    for address in (
        *("https://proxy.example", "https://api.anthropic.com.evil.test"),
        "http://api.anthropic.com",
    ):
        with pytest.raises(
            ConfigurationError, match=r"a login is sent only to https://api\.anthropic\.com"
        ):
            GatewaySettings(upstreams={"anthropic": address}, logins=("claude",)).check()


def test_the_doctor_says_of_each_login_how_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "none"))
    claude_login(tmp_path)

    def facts(*logins: str) -> dict[str, tuple[str, str]]:
        described = GatewaySettings(logins=logins).describe()
        return {fact.subject: (fact.state, fact.text) for fact in described}

    state, text = facts()["login of claude"]
    assert state == "ok"
    assert "its token is valid until" in text
    assert text.endswith("; --intercode-gateway-login=claude would use it")
    assert "login of codex" not in facts()
    assert facts("codex")["login of codex"][0] == "problem"
    claude_login(tmp_path, seconds=-10)
    assert "is renewed when needed" in facts("claude")["login of claude"][1]
    (tmp_path / ".credentials.json").chmod(0o640)
    state, text = facts()["login of claude"]
    assert (state, "mode 640" in text) == ("note", True)
    assert not any(secret in str(facts("claude")) for secret in (ACCESS, REFRESH))


@pytest.mark.parametrize(
    ("headers", "error", "seconds"),
    [
        ({"retry-after": "12"}, {}, 12),
        ({"retry-after": "-3"}, {}, 0),
        ({"anthropic-ratelimit-unified-reset": "1060"}, {}, 60),
        ({}, {"resets_in_seconds": 90}, 90),
        ({}, {"resets_at": 1030}, 30),
        ({"retry-after": "Fri, 27 Nov 2026 00:00:00 GMT"}, {"resets_at": 1e300}, 31 * 86400),
        ({"retry-after": "nan"}, {"resets_at": {}}, None),
        ({}, "no object", None),
    ],
)
def test_when_a_limit_is_reset(
    headers: dict[str, str], error: object, seconds: float | None
) -> None:
    data = json.dumps({"error": error}).encode()
    assert seconds_until_reset(headers, data, now=1000.0) == seconds
