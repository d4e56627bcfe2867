"""``task.toml``: what is read, what is ignored and what is refused, each in one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.harbor.config import TaskConfig, read_config, read_toml
from pytest_intercode.suites.harbor.writing import toml


def read(text: str) -> TaskConfig:
    return read_config(text, "task.toml")


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.4", "1", "0.0", "2.0", ""])
def test_every_version_is_read_as_harbor_looks_at_none(version: str) -> None:
    assert read(f'schema_version = "{version}"').schema_version == version
    assert read(f'version = "{version}"').schema_version == version


def test_what_is_not_given_has_harbors_default() -> None:
    config = read("")
    assert (config.schema_version, config.agent.timeout_sec) == ("1.4", None)
    assert (config.verifier.timeout_sec, config.environment.build_timeout_sec) == (600.0, 600.0)
    assert (config.environment.network_mode, config.steps, config.artifacts) == ("public", None, [])


def test_unknown_keys_are_ignored() -> None:
    config = read(
        "new = 1\n[environment]\nnew = 2\n[verifier.new]\na = 1\n[[steps]]\nname = 'a'\nb = 1"
    )
    assert config.steps is not None
    assert config.steps[0].name == "a"


@pytest.mark.parametrize(
    ("written", "megabytes"),
    [("2G", 2048), ("512M", 512), ("1.5g", 1536), ("2048K", 2), (" 1G ", 1024)],
)
def test_sizes_of_old_versions_have_their_unit(written: str, megabytes: int) -> None:
    config = read(f'[environment]\nmemory = "{written}"\nstorage = "{written}"')
    assert (config.environment.memory_mb, config.environment.storage_mb) == (megabytes, megabytes)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("allow_internet = true", "public"),
        ("allow_internet = false", "no-network"),
        ("allow_internet = false\nnetwork_mode = 'public'", "public"),
        ("network_mode = 'allowlist'\nallowed_hosts = ['A.example.com.', '*.b.org']", "allowlist"),
        ("network_mode = 'allowlist'\nallowed_hosts = ['10.0.0.0/8', '::1']", "allowlist"),
    ],
)
def test_network_modes(text: str, mode: str) -> None:
    for table in ("environment", "verifier.environment"):
        config = read(f"[{table}]\n{text}")
        box = config.verifier.environment or config.environment
        assert box.network_mode == mode
        assert "allow_internet" not in box.model_dump()


def test_hosts_are_compared_in_one_form() -> None:
    hosts = ["API.Example.com.", "*.B.org", "10.0.0.0/8", "2001:DB8::0:1", "192.0.2.1"]
    config = read(f"[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = {hosts!r}")
    same = ["api.example.com", "*.b.org", "10.0.0.0/8", "2001:db8::1", "192.0.2.1"]
    assert config.agent.allowed_hosts == same


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = \nb = 1", r"task\.toml: not TOML: .*line 1"),
        ("a = 1\na = 2\nb = 1", r"task\.toml: not TOML: .*line 2"),
        ("a = " + "[" * 5000, r"task\.toml: not TOML: (nested too deeply|.*line)"),
        ("a = " + "9" * 5000, r"task\.toml: not TOML: "),
        ("schema_version = 1.0", r"schema_version: a string is needed, found 1\.0 \(float\)"),
        ("[task]\nname = 'plain'", "task.name: .*like owner/name.*found 'plain'"),
        ("[task]\nversion = '1'", "task.name: this field is missing"),
        ("[agent]\ntimeout_sec = 'soon'", "agent.timeout_sec: a number is needed, found 'soon'"),
        ("[environment]\nos = 'beos'", "environment.os: 'beos' is not one of linux, windows"),
        ("[environment]\nmemory = 'much'", "environment: .*a size like 2G"),
        ("[environment]\nmemory = '2G'\nmemory_mb = 1", "memory = '2G' contradicts memory_mb"),
        ("[environment]\ncpus = 1.5", "environment.cpus: .*found 1.5"),
        ("[environment]\nallowed_hosts = ['a']", "allowed_hosts is for network_mode = 'allowlist'"),
        ("[agent]\nallowed_hosts = []", "agent: allowed_hosts is for"),
        (
            "[verifier]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['https://a/b']",
            "verifier.allowed_hosts.0: 'https://a/b'",
        ),
        (
            "[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['*.10.0.0.1']",
            "a wildcard is for hosts' names",
        ),
        (
            "[verifier]\nenvironment_mode = 'shared'\n[verifier.environment]",
            r"verifier: environment_mode = 'shared' excludes \[verifier.environment\]",
        ),
        (
            "artifacts = [{source = '/a/../b'}]",
            r"artifacts.0.*source: '/a/../b': '..' is not allowed",
        ),
        ("artifacts = [{source = '/a', destination = '/b'}]", "a relative path without"),
        ("artifacts = [{source = '/a', destination = 'manifest.json'}]", "Harbor's own list"),
        ("artifacts = [{source = 'a', service = 'db'}]", "in another service must be absolute"),
        ("[[verifier.collect]]\nservice = 'x y'\ncommand = 'a'", "not a name of a compose service"),
        ("[[environment.mcp_servers]]\nname = 'a'", "the transport sse needs url"),
        ("[environment.tpu]\ntype = 'v6e'\ntopology = '2'", "numbers with x between them"),
        ("[environment.healthcheck]\nretries = 1", "environment.healthcheck.command: this field"),
        ("[[steps]]\nmin_reward = 1", "steps.0.name: this field is missing"),
        ("multi_step_reward_strategy = 'max'", "'max' is not one of mean, final"),
    ],
)
def test_a_mistake_is_one_line(text: str, message: str) -> None:
    with pytest.raises(SuiteError, match=message) as caught:
        read(text)
    assert str(caught.value).startswith("task.toml: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_too_large_is_not_parsed() -> None:
    with pytest.raises(SuiteError, match="larger than 1 MiB"):
        read("#" * 2**21)


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    _TEXTS,
    st.lists(_TEXTS, max_size=3),
)
_TABLES = st.recursive(
    st.dictionaries(_TEXTS, _VALUES, max_size=4),
    lambda inner: st.dictionaries(
        _TEXTS, inner | st.lists(inner, min_size=1, max_size=3), max_size=3
    ),
    max_leaves=8,
)


@given(_TABLES)
def test_what_is_written_is_read_again(tables: dict[str, Any]) -> None:
    assert read_toml(toml(tables), "x") == tables


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        config = read(text)
    except SuiteError:
        return
    assert config.schema_version
