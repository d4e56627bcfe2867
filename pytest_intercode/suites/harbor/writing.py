"""Writes tasks as folders in Harbor's format, so that Harbor can run them."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pytest_intercode.core.servers import address_of
from pytest_intercode.core.task import Limits, Task, Verification
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.environments.swe.fields import SweFields, repository_of
from pytest_intercode.environments.swe.repositories import repository_layer
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.harbor import terminal_bench
from pytest_intercode.suites.harbor.dockerfiles import read_machine
from pytest_intercode.suites.harbor.parts import read_text
from pytest_intercode.suites.services import find_missing_services
from pytest_intercode.system.archives import build_archive, context_files, pack_files, unpack_own
from pytest_intercode.system.files import bundled_folder
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["toml", "write_swe", "write_terminal_bench"]

_VERSION = "1.4"
_SENTINELS = re.compile(r"\s*\{sentinels(?::\w+)?\}")
_MEGABYTE = 1024**2
_TASK_FILES = ("task.yaml", "docker-compose.yaml", "run-tests.sh", "solution.sh", "solution.yaml")
# Reads the same as Terminal-Bench on the screen. Without a result there is no reward, which is an
# error in Harbor.
_SUMMARY = """#!/bin/bash
# The results are read as Terminal-Bench reads them: every test of the summary has to pass.
log=$(mktemp)
bash /tests/run-tests.sh 2>&1 | tee "$log"
awk '
  tolower($0) ~ /=+ *short test summary info *=+/ { summary = 1; next }
  summary && NF > 1 && /^(PASSED|XFAIL|SKIPPED):* / { passed++ }
  summary && NF > 1 && /^(FAILED|XPASS|ERROR):* / { failed++ }
  END { if (passed + failed) print (failed ? 0 : 1) }
' "$log" >/logs/verifier/reward
"""
_MARKS = """#!/bin/bash
# The result is between the marks that SWE-bench's harness prints.
log=$(mktemp)
bash /tests/run-tests.sh 2>&1 | tee "$log"
awk '
  /SWEBench results starts here/ { inside = 1; next }
  /SWEBench results ends here/ { print (text == "PASSED" ? 1 : 0); exit }
  inside { gsub(/^ +| +$/, ""); text = text $0 }
' "$log" >/logs/verifier/reward
"""
_REWARD = """[ -s /logs/verifier/reward ] && mv /logs/verifier/reward /logs/verifier/reward.txt
rm -f /logs/verifier/reward
"""
_CHECKED = """#!/bin/bash
cd {workdir} || exit
{patch}log=$(mktemp)
(
{command}
) >"$log" 2>&1
status=$?
cat "$log"
{rule} && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
"""


def write_terminal_bench(folder: SuitePath, target: Path) -> None:
    """Write a task folder of Terminal-Bench 1 as one of Harbor.

    Raises:
        SuiteError: a file is missing or wrong, or Harbor's format does not support the task.
    """
    config = terminal_bench.read_task(folder)
    task = terminal_bench.terminal_bench_task(folder, folder.parent.name)
    if task.skip:
        raise SuiteError(f"{folder}: {task.skip}")
    _check_machines(task, str(folder))
    assert task.image is not None
    assert task.verification is not None
    script = read_text(folder / "run-tests.sh", "the tests' script")
    environment: dict[str, Any] = _machine(task.limits)
    if task.image.dockerfile is not None:
        _copy_context(task.image.dockerfile, target / "environment")
        text = task.image.text or read_text(task.image.dockerfile, "the Dockerfile")
        image_machine = read_machine(text)
        entrypoint = terminal_bench.service_of(folder).entrypoint
        if entrypoint is not None and entrypoint != image_machine.entrypoint:
            text = f"{text.rstrip()}\nENTRYPOINT {json.dumps(entrypoint)}\n"
        if image_machine.user != task.user:
            text = f"{text.rstrip()}\nUSER {task.user or 'root'}\n"
        if image_machine.workdir != task.workdir:
            environment["workdir"] = task.workdir
        _write(target / "environment" / "Dockerfile", text)
    else:
        (target / "environment").mkdir(parents=True)
        environment |= {"docker_image": task.image.image, "workdir": task.workdir}
    environment["env"] = dict(task.variables)
    metadata = {k: v for k, v in task.metadata.items() if k not in ("parser_name",)}
    agent: dict[str, Any] = {"timeout_sec": config.max_agent_timeout_sec}
    if task.user:
        agent["user"] = task.user
    tables = {
        "schema_version": _VERSION,
        "metadata": metadata,
        "agent": agent,
        "verifier": {
            "timeout_sec": config.max_test_timeout_sec,
            "user": "root",
            "env": dict(task.verification.variables),
        },
        "environment": environment,
    }
    _write(target / "task.toml", toml(tables))
    _write(target / "instruction.md", config.instruction.rstrip("\n") + "\n")
    if (folder / "tests").is_dir():
        for name, path in (folder / "tests").files():
            _copy(path.place(), target / "tests" / name)
    _write(target / "tests" / "run-tests.sh", script, 0o755)
    head = _SUMMARY if task.verification.parser == "terminal-bench" else _MARKS
    _write(target / "tests" / "test.sh", head + _REWARD, 0o755)
    if (folder / "solution.sh").is_file():
        text = read_text(folder / "solution.sh", "the solution")
        _write(target / "solution" / "solve.sh", _with_shebang(text), 0o755)
    elif task.gold:
        _write(target / "solution" / "solve.sh", _with_shebang("\n".join(task.gold)), 0o755)


def write_swe(task: Task, gold: Iterable[str], target: Path) -> None:
    """Write a task of the environment ``swe`` as a folder of Harbor.

    Args:
        task: the task.
        gold: the actions of its gold.
        target: the folder, which is created.

    Raises:
        SuiteError: its tests' results need a parser that is too complex for a short script, or it
            has several machines.
    """
    verification = task.verification
    if not kind_of(task.env).has_shell or verification is None:
        raise SuiteError(
            f"{task.source}: task {task.id!r}: {task.env} is graded by comparing with gold, but "
            "Harbor grades with a script; only tasks of swe can be written"
        )
    _check_machines(task, f"{task.source}: task {task.id!r}")
    rule = _rule(task, verification)
    _write_image(task, target / "environment")
    _write(target / "task.toml", toml(_description(task, verification)))
    _write(target / "instruction.md", task.query.rstrip("\n") + "\n")
    _write_tests(task, verification, rule, target / "tests")
    _write(target / "solution" / "solve.sh", _with_shebang("\n".join(gold)), 0o755)


def _write_image(task: Task, folder: Path) -> None:
    """Write the folder with the Dockerfile of a task: its image, layers, files and setup."""
    folder.mkdir(parents=True)
    image = task.image
    if image is not None and image.dockerfile is None:
        lines = [f"FROM {image.image}"]
    else:
        default_dockerfile = bundled_folder("dockerfiles") / "swe.Dockerfile"
        dockerfile = image.dockerfile if image and image.dockerfile else default_dockerfile
        _copy_context(dockerfile, folder)
        (folder / dockerfile.name).unlink(missing_ok=True)
        text = image.text if image is not None and image.text else dockerfile.read_text("utf-8")
        lines = text.rstrip().splitlines()
    layers = [*(image.layers if image is not None else ())]
    repository = repository_of(task)
    if repository is not None and repository.source is not None:
        layers.append(repository_layer(repository))
    for index, layer in enumerate(layers):
        shutil.copy(layer, folder / f"layer-{index}.tar")
        lines.append(f"ADD layer-{index}.tar /")
    files = build_archive(task, 0.0)
    if files:
        (folder / "files.tar").write_bytes(files)
        lines.append("ADD files.tar /")
    lines.append(f"WORKDIR {task.workdir}")
    lines += [f"RUN {json.dumps(['bash', '-c', command])}" for command in task.setup]
    _write(folder / "Dockerfile", "\n".join(lines) + "\n")


def _description(task: Task, verification: Verification) -> dict[str, Any]:
    """Return the tables of ``task.toml``."""
    fields = SweFields.of(task)
    environment = {
        **_machine(task.limits),
        **_network(task.limits, fetches=verification.kit is not None),
    }
    if fields.mcp:
        environment["mcp_servers"] = [_server(name, line) for name, line in fields.mcp.items()]
    if fields.skills:
        environment["skills_dir"] = fields.skills
    verifier: dict[str, Any] = {
        "timeout_sec": verification.timeout,
        "env": dict(verification.variables),
    }
    if verification.collect:
        verifier["collect"] = [
            {"command": hook.command, "user": hook.user or "root", "timeout_sec": hook.timeout}
            for hook in verification.collect
        ]
    return {
        "schema_version": _VERSION,
        "metadata": {"difficulty": task.hardness or "unknown", "tags": list(task.tags)},
        "agent": {"timeout_sec": task.timeout or 600.0},
        "verifier": verifier,
        "environment": environment,
    }


def _write_tests(task: Task, verification: Verification, rule: str, folder: Path) -> None:
    """Write the folder with the files of a verification, and the script that grades by them."""
    packed = pack_files(verification.files, task.workdir, 0.0)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        unpack_own(archive, folder / "files")
    brought = f"cp -a {shlex.quote('/tests/files/.')} /\n"
    if verification.patch:
        _write(folder / "tests.patch", verification.patch)
        brought += "git apply --whitespace=nowarn /tests/tests.patch\n"
    script = _CHECKED.format(
        workdir=shlex.quote(task.workdir),
        patch=brought,
        command=_SENTINELS.sub("", verification.command),  # sentinels only exist in our verifier
        rule=rule,
    )
    _write(folder / "test.sh", script, 0o755)
    names = (*verification.fail_to_pass, *verification.pass_to_pass)
    _write(folder / "names.txt", "".join(f"{name}\n" for name in names))


def _server(name: str, server: str) -> dict[str, Any]:
    """Return a tool server in the form of ``task.toml``."""
    address = address_of(server)
    if address is None:
        return {"name": name, "transport": "stdio", "command": "sh", "args": ["-c", server]}
    transport = "sse" if address.transport == "sse" else "streamable-http"
    return {"name": name, "transport": transport, "url": address.url}


def _check_machines(task: Task, place: str) -> None:
    """Refuse a task with several machines or shared folders.

    Raises:
        SuiteError: the task cannot be written.
    """
    if task.services or task.mounts or find_missing_services(task):
        raise SuiteError(f"{place}: its services and shared folders cannot be written")


# Commands that find the line of the log that reports a test as passed.
_PASSED = {
    "pytest": 'grep -qxF -- "PASSED $name" "$log"',
    "tap": 'sed -nE "s/^ok [0-9]+ //p" "$log" | grep -qxF -- "$name"',
    "unittest": 'grep -qxF -- "$name ... ok" "$log"',
}
_STATUS = "status"


def _rule(task: Task, verification: Verification) -> str:
    """Return the bash condition for a reward of 1."""
    if verification.parser == _STATUS:
        return "[ $status = 0 ]"
    passed = _PASSED.get(verification.parser)
    if passed is None:
        raise SuiteError(
            f"{task.source}: task {task.id!r}: results of the parser {verification.parser!r} "
            f"cannot be read by a script of Harbor's format; those of {', '.join(_PASSED)} and "
            f"{_STATUS} can"
        )
    missing = f"while IFS= read -r name; do {passed} || echo; done </tests/names.txt"
    return f"! {{ {missing}; }} | grep -q ''"


def _network(limits: Limits, *, fetches: bool) -> dict[str, Any]:
    """Return the fields for network access: all of it if tests install packages."""
    if limits.hosts:
        return {"network_mode": "allowlist", "allowed_hosts": list(limits.hosts)}
    public = limits.network or (fetches and not limits.offline)
    return {"network_mode": "public" if public else "no-network"}


def _machine(limits: Limits) -> dict[str, Any]:
    return {
        "cpus": max(1, round(limits.cpus)),
        "memory_mb": max(1, limits.memory // _MEGABYTE),
        "storage_mb": max(1, limits.file_size // _MEGABYTE),
    }


def _copy_context(dockerfile: Path, target: Path) -> None:
    """Copy the files that a build may use, without the task's own files."""
    text = dockerfile.read_text("utf-8")
    for name, path in context_files(dockerfile):
        first = name.partition("/")[0]
        is_task_file = first in _TASK_FILES or (first == "tests" and "tests" not in text)
        if is_task_file and first not in text:
            continue
        _copy(path, target / name)


def _copy(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)


def _with_shebang(text: str) -> str:
    text = text if text.endswith("\n") else f"{text}\n"
    return text if text.startswith("#!") else f"#!/bin/bash\n{text}"


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(mode)


def toml(tables: Mapping[str, Any]) -> str:
    """Return tables as TOML: strings, numbers, booleans, lists, and tables of them."""
    return "".join(_lines(tables, "")).strip() + "\n"


def _lines(table: Mapping[str, Any], name: str) -> list[str]:
    plain, nested = [], []
    for key, value in table.items():
        full = f"{name}.{_key(key)}" if name else _key(key)
        if isinstance(value, Mapping):
            nested += [f"\n[{full}]\n", *_lines(value, full)]
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            for inner_table in value:
                nested += [f"\n[[{full}]]\n", *_lines(inner_table, full)]
        else:
            plain.append(f"{_key(key)} = {_value(value)}\n")
    return plain + nested


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, str):
        # JSON strings are valid TOML strings, except for one control character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
