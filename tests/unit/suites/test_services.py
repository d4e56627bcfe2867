"""``services`` of a suite of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_intercode.core.machine import FileSpec, HealthCheck, ImageSource, Limits, Service
from pytest_intercode.core.task import Artifact, Hook, Task
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.loader import load_suite

_SUITE = """
env: swe
defaults:
  image: debian
  services:
    db: {image: postgres, variables: {A: "1"}, health: pg_isready}
tasks:
- id: a
  query: Do it.
  gold: "true"
  verification:
    command: "true"
    parser: status
    collect: [{command: dump, service: db, user: postgres}]
    evidence: [{service: db, path: /dump, exclude: ["*.log"]}]
  services:
    web:
      dockerfile: web.Dockerfile
      platform: linux/amd64
      command: [serve, "80"]
      files: {/srv/a: "1\\n", /srv/b: {path: b.txt, mode: "0755"}}
      depends_on: {db: started}
      health: {command: [check], interval: 0.5, retries: 3}
      volumes: {shared: /shared}
      tmpfs: [/fast]
      limits: {memory: 64m, pids: 20}
      networks: [default, inner]
      restart: always
- {id: b, query: Do it., gold: "true", verification: {command: "true", parser: status}}
"""


def load(folder: Path, text: str) -> list[Task]:
    (folder / "web.Dockerfile").write_text("FROM debian\n")
    (folder / "b.txt").write_text("b\n")
    (folder / "suite.yaml").write_text(text)
    return list(load_suite(folder / "suite.yaml").tasks)


def test_services_of_a_task_are_added_to_those_of_all(tmp_path: Path) -> None:
    first, second = load(tmp_path, _SUITE)
    db, web = first.services.machines
    assert first.services.names == ("main",)
    check = HealthCheck(("/bin/sh", "-c", "pg_isready"))
    assert db == Service("db", ImageSource(image="postgres"), variables=(("A", "1"),), health=check)
    assert second.services.machines == (db,)
    assert web.image.dockerfile == tmp_path / "web.Dockerfile"
    assert str(web.image.platform) == "linux/amd64"
    assert web.command == ("serve", "80")
    assert dict(web.files)["/srv/b"] == FileSpec("file", b"b\n", mode=0o755)
    assert web.depends_on == (("db", "started"),)
    assert web.health == HealthCheck(("check",), 0.5, retries=3)
    assert (web.volumes, web.tmpfs) == ((("shared", "/shared"),), ("/fast",))
    assert web.limits == Limits(memory=64 * 1024**2, pids=20)
    assert (web.networks, web.restarts) == (("default", "inner"), "always")
    verification = first.verification
    assert verification is not None
    assert verification.collect == (Hook("dump", "postgres", 60.0, "db"),)
    assert verification.evidence == (Artifact("/dump", ("*.log",), "db"),)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("depends_on: {db: started}", "depends_on: [cache]", "there is no cache, which web"),
        ("db: {image: postgres,", "db: {image: x, depends_on: [web],", "they wait for each other"),
        ("    web:", "    main:", "main is the agent's own machine; choose another name"),
        ("dockerfile: web.Dockerfile", "user: x", "image or dockerfile is needed"),
        ("pids: 20", "network: true", "a service has the network and output limits of its"),
        ("/srv/a:", "srv/a:", "files: an absolute path is needed, found 'srv/a'"),
        ("service: db, user", "service: cache, user", "there is no cache, which the verification"),
        ("restart: always", "privileged: true", "there is no such field"),
        ("tmpfs: [/fast]", "tmpfs: ['/fast:size=1g']", "web.tmpfs.0: /, paths in /proc"),
        ("{shared: /shared}", "{shared: /proc/a}", "web.volumes.shared: /, paths in /proc"),
        ("memory: 64m", "memory: 1", "memory: input should be greater than or equal to 6291456"),
        ("memory: 64m", "memory: 9999999999g", "memory: input should be less than or equal to"),
        ("image: postgres", "image: ''", "db: image or dockerfile is needed"),
        ("{db: started}", "{db: ready}", "web.depends_on.db: 'ready' is not one of started"),
        ("env: swe", "env: sql", "services: is for tasks with a shell, not for the env sql"),
    ],
)
def test_a_mistake_is_one_line(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = _SUITE.replace(old, new)
    assert text != _SUITE
    if "sql" in new:
        text = "env: sql\ntasks: [{id: a, query: b, gold: c, services: {db: {image: d}}}]"
    with pytest.raises(SuiteError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "asked", ["collect: [{command: dump, service: db}]", "evidence: [{service: db, path: /dump}]"]
)
def test_what_is_asked_of_a_service_needs_it(asked: str, tmp_path: Path) -> None:
    defaults = f"{{verification: {{command: 'true', parser: status, {asked}}}}}"
    task = "{id: a, query: Do it., gold: 'true'}"
    text = f"env: swe\ndefaults: {defaults}\ntasks:\n- {task}\n"
    with pytest.raises(SuiteError, match="4: task 'a': services: there is no db, which the verif"):
        load(tmp_path, text)
    own_services = "services: {db: {image: postgres}}}"
    (loaded,) = load(tmp_path, text.replace(task, f"{task[:-1]}, {own_services}"))
    assert [machine.name for machine in loaded.services.machines] == ["db"]
