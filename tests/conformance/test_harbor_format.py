"""``task.toml`` is read as Harbor 0.20 reads it: its own code's reading of published tasks.

The published files are not here. So each is written again from what Harbor made of it, once whole
and once as short as its defaults allow, in the names of its schema's version, and has to be read as
the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.suites.harbor.config import TaskConfig, read_config
from pytest_intercode.suites.harbor.writing import toml

_NAMES = (
    *("constraints-scheduling", "environment-env-single", "git-leak-recovery"),
    *("hello-healthcheck", "hello-multi-step-simple", "hello-user", "multi-step"),
    *("openssl-selfsigned-cert", "separate-verifier-environment"),
    "verifier-mode-multistep-top-shared-mixed",
)
# Harbor's defaults, written down from its documentation and not taken from our own code.
_DEFAULTS: dict[str, Any] = {
    "timeout_sec": 600.0,
    "build_timeout_sec": 600.0,
    "network_mode": "public",
    "os": "linux",
    "description": "",
    "start_period_sec": 0.0,
    "start_interval_sec": 5.0,
}


@pytest.fixture(scope="module", autouse=True)
def docker_answers() -> None:
    """Nothing here needs Docker."""


@pytest.fixture(scope="module")
def read_by_harbor(samples: Path) -> dict[str, Any]:
    file = samples / "harbor-format-parsed-by-harbor-0.20.json"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_there_are_no_other_samples(read_by_harbor: dict[str, Any]) -> None:
    assert set(read_by_harbor) == set(_NAMES)


def whole(value: Any) -> Any:
    """Return a value without what TOML has no word for."""
    if isinstance(value, dict):
        return {key: whole(each) for key, each in value.items() if each is not None}
    return [whole(each) for each in value] if isinstance(value, list) else value


def short(value: Any, place: str = "") -> Any:
    """Return a value without the defaults of Harbor, and with the names of its first version."""
    if isinstance(value, list):
        return [short(each, place) for each in value]
    if not isinstance(value, dict):
        return value
    if place == "metadata":
        return value
    made: dict[str, Any] = {}
    for key, each in value.items():
        default = None if (place, key) == ("agent", "timeout_sec") else _DEFAULTS.get(key)
        each = short(each, key)
        if each is None or each in ([], {}) or each == default:
            continue
        made[key] = each
    return made


def old(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration in the names of schema 1.0."""
    config = dict(config)
    config["version"] = config.pop("schema_version")
    box = dict(config.get("environment", {}))
    if "memory_mb" in box:
        box["memory"] = f"{box.pop('memory_mb') / 1024:g}G"
    if "storage_mb" in box:
        box["storage"] = f"{box.pop('storage_mb')}M"
    if box.pop("network_mode", "public") == "no-network":
        box["allow_internet"] = False
    return {**config, "environment": box}


def dumped(config: TaskConfig) -> Any:
    return config.model_dump(mode="json")


@pytest.mark.parametrize("name", _NAMES)
def test_a_task_is_read_as_harbor_reads_it(name: str, read_by_harbor: dict[str, Any]) -> None:
    expected = read_by_harbor[name]
    # An empty [verifier.environment] says something, so it is never left out.
    assert dumped(read_config(toml(whole(expected)), name)) == expected
    brief = short(expected)
    for table in (brief, *brief.get("steps", ())):
        original = expected if table is brief else _step(expected, table["name"])
        if original["verifier"]["environment"] is not None:
            box = table.setdefault("verifier", {}).setdefault("environment", {})
            box.setdefault("network_mode", original["verifier"]["environment"]["network_mode"])
    assert len(toml(brief)) < len(toml(whole(expected)))
    assert dumped(read_config(toml(brief), name)) == expected
    assert dumped(read_config(toml(old(brief)), name)) == expected


def _step(config: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(step for step in config["steps"] if step["name"] == name)
    return found
