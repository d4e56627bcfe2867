"""Task folders of both formats are read whole: our own, which have every field, and wrong ones."""

from __future__ import annotations

import pickle
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_intercode.core.hosts import parse_host
from pytest_intercode.core.permissions import Permissions
from pytest_intercode.core.task import (
    Archive,
    Artifact,
    Hook,
    ImageSource,
    Limits,
    Task,
)
from pytest_intercode.environments.task_json import task_from_json, task_to_json
from pytest_intercode.errors import ConfigurationError, MissingFile, SuiteError
from pytest_intercode.suites.catalogue import (
    named_tasks,
    with_allowed_hosts,
    with_kit,
    with_network,
    with_shared_verifier,
)
from pytest_intercode.suites.harbor.datasets import folder_tasks, registry_tasks
from pytest_intercode.system.digest import digest

_ROOT = Path(__file__).parents[4] / "examples"
_MEGABYTE = 1024**2


@pytest.fixture(scope="module")
def own() -> dict[str, Task]:
    folders = (_ROOT / "harbor", _ROOT / "terminal-bench")
    return {task.id: task for folder in folders for task in folder_tasks(folder)}


def test_our_own_folders_are_twenty_tasks_of_swe(own: dict[str, Task]) -> None:
    harbor = {task.id for task in own.values() if task.suite == "folders"}  # of dataset.toml
    terminal_bench = {task.id for task in own.values() if task.suite == "terminal-bench"}
    assert (len(harbor), len(terminal_bench)) == (10, 10)
    for task in own.values():
        assert task.env == "swe"
        assert task.query
        if task.id == "same-shell":
            assert "its tests run in the agent's own shell" in (task.skip or "")
            continue
        assert task.skip is None
        assert task.gold
        assert task.verification is not None
        assert task_from_json(task_to_json(task)) == task == pickle.loads(pickle.dumps(task))
    assert len({digest(task) for task in own.values()}) == len(own)


def test_an_old_task(own: dict[str, Task]) -> None:
    task = own["greeting"]
    assert task.query.startswith("Write a file `greeting.txt`")  # and no canary
    assert (task.hardness, task.tags) == ("easy", ("text-files", "shell", "file-operations"))
    assert task.limits == Limits(512 * _MEGABYTE, 1.0, 4096, 1024 * _MEGABYTE, offline=True)
    assert (task.timeout, task.action_timeout, task.workdir, task.user) == (
        120.0,
        120.0,
        "/app",
        "",
    )
    assert task.metadata["author_name"] == "A. Person"
    checked = task.verification
    assert checked is not None
    assert (checked.parser, checked.report, checked.timeout) == ("reward", "/logs/verifier", 120.0)
    assert checked.kit == ("pytest==8.4.1", "pytest-json-ctrf==0.3.5")
    assert checked.archives == (Archive(_ROOT / "harbor/greeting/tests", "/tests"),)
    assert checked.files["/tests/test.sh"].mode == 0o755
    assert checked.artifacts is None


def test_a_service_a_health_check_and_variables(own: dict[str, Task]) -> None:
    task = own["service"]
    started, healthy = task.setup
    assert started == (
        "cd /app && setsid -f /usr/local/bin/serve.sh sh -c 'sleep infinity' </dev/null "
        ">/dev/null 2>&1"
    )
    assert "timeout 5 bash -c 'test -s /run/service/ready'" in healthy
    assert dict(task.variables) == {
        "SERVICE_WORD": "marigold",
        "LITERAL": "a ${HOME} in the middle stays",
    }
    assert task.metadata["created"] == "2024-05-06"
    assert task.metadata["harbor"]["authors"][1] == {"name": "B. Person"}


def test_users(own: dict[str, Task]) -> None:
    task = own["users"]
    assert (task.user, task.workdir) == ("worker", "/srv/work")
    assert task.verification is not None
    assert task.verification.user == "judge"
    assert dict(task.verification.variables) == {
        "EXPECTED": "worker",
        "FROM_HOST": "by default",
    }
    assert "NOTE='by the solution' && /solution/solve.sh" in task.gold[0]


def test_a_separate_verifier(own: dict[str, Task]) -> None:
    task, checked = own["separate"], own["separate"].verification
    assert checked is not None
    assert checked.artifacts == (
        Artifact("/app/out"),
        Artifact("/var/log/build.log"),
        Artifact("/logs/artifacts"),
    )
    assert checked.image == ImageSource(dockerfile=_ROOT / "harbor/separate/tests/Dockerfile")
    assert checked.image != task.image
    assert (checked.workdir, checked.archives) == ("/judge", ())
    assert checked.collect == (Hook("ls /app > /logs/artifacts/listing.txt", "", 20.0),)
    assert checked.limits is not None
    assert checked.limits.memory == 256 * _MEGABYTE
    assert dict(checked.variables) == {"LIMIT": "3"}


def test_steps(own: dict[str, Task]) -> None:
    task = own["steps"]
    begin, extend, close = task.steps
    assert (task.query, task.verification, task.overall) == (
        begin.query,
        begin.verification,
        "mean",
    )
    assert [command == "submit" for command in task.gold] == [False, True, False, True, False]
    assert begin.query == "Write the line `first` into `/app/list.txt`.\n"
    assert (begin.least, extend.least) == ((("reward", 1.0),), (("reward", 0.5), ("lines", 0.5)))
    assert dict(begin.verification.variables) == {"WORD": "first"}
    assert dict(extend.verification.variables) == {"WORD": "second"}
    assert [step.verification.timeout for step in task.steps] == [30.0, 30.0, 60.0]
    tests = _ROOT / "harbor/steps"
    assert extend.verification.archives == (
        Archive(tests / "tests", "/tests"),
        Archive(tests / "steps/extend/tests", "/tests"),
    )
    assert close.verification.archives == (Archive(tests / "tests", "/tests"),)
    assert extend.archive == Archive(tests / "steps/extend/workdir", "/app")
    assert extend.setup[0] == "bash /app/setup.sh"
    assert "test -e /app/prepared" in extend.setup[1]
    assert task.timeout == 180.0


def test_a_step_with_a_separate_verifier(own: dict[str, Task]) -> None:
    task = own["last-step-counts"]
    draft, final = task.steps
    assert task.overall == "final"
    assert draft.verification.artifacts is None
    assert final.verification.artifacts == (Artifact("/app/text.txt"), Artifact("/logs/artifacts"))
    assert final.verification.image is not None


def test_images_and_compose_files(own: dict[str, Task]) -> None:
    prebuilt, composed = own["prebuilt"], own["composed"]
    assert prebuilt.image == ImageSource(image="debian:bookworm-slim")
    assert prebuilt.archive == Archive(_ROOT / "harbor/prebuilt/environment", "/data")
    assert prebuilt.limits.hosts == (
        *("packages.example.org", "*.example.net", "192.0.2.0/24", "2001:db8::1"),
    )
    assert prebuilt.verification is not None
    assert prebuilt.verification.limits is not None  # the tests' network is the machine's
    assert prebuilt.verification.limits.hosts == ()
    for host in prebuilt.limits.hosts:
        parse_host(host)
    assert composed.archive is None
    assert (composed.workdir, composed.limits.memory) == ("/work", 256 * _MEGABYTE)
    assert composed.variables == (("COLOUR", "green"),)


def test_terminal_bench(own: dict[str, Task]) -> None:
    task = own["hello-uv"]
    assert (task.timeout, task.hardness) == (60.0, "easy")
    assert task.variables == (("TEST_DIR", "/tests"),)
    assert task.verification is not None
    assert task.verification.parser == "terminal-bench"
    assert task.verification.command == "bash /tests/run-tests.sh"
    assert task.verification.kit == ("pytest==8.4.1",)
    assert own["counted"].verification is not None
    assert (own["counted"].timeout, own["counted"].verification.timeout) == (360.0, 60.0)
    assert own["typed-solution"].gold == ("mkdir -p a/b", "cd a/b", "touch c")
    marks = own["marks"].verification
    assert marks is not None
    assert marks.parser == "terminal-bench-swebench"


def test_the_base_images_of_terminal_bench_are_plain_ones(own: dict[str, Task]) -> None:
    image = own["known-base"].image
    assert image is not None
    assert "/t-bench/ubuntu-24-04:20250624\nWORKDIR /app\nCOPY" in image.text
    assert own["known-base"].workdir == "/app"
    other = own["links"].image
    assert other is not None
    assert other.text == ""


def test_a_machine_with_settings(own: dict[str, Task]) -> None:
    task = own["settings"]
    assert (task.user, task.workdir) == ("maker", "/home/maker")
    assert dict(task.variables)["SHAPE"] == "circle"
    assert task.limits.memory == 256 * _MEGABYTE
    assert "setpriv --reuid maker" in task.setup[0]
    assert task.setup[1] == "mkdir -pm 777 /oracle"
    assert "/usr/local/bin/begin.sh sh -c" in task.setup[0]


def test_gold_writes_the_files_of_a_solution(own: dict[str, Task], tmp_path: Path) -> None:
    command = own["state-anywhere"].gold[0]
    assert "base64 -d >/solution/greet" in command  # its last line does not end
    assert "cat >/solution/solve.sh <<'END_OF_FILE'\n#!/bin/bash\nset -e\n" in command
    here = command.replace("/solution", str(tmp_path)).rpartition("\n(cd ")[0]
    subprocess.run(["bash", "-c", here], check=True)
    for name in ("solve.sh", "greet"):
        original = _ROOT / "harbor/state-anywhere/solution" / name
        expected = original.read_text().replace("/solution", str(tmp_path))
        assert (tmp_path / name).read_text() == expected
    assert stat.S_IMODE((tmp_path / "solve.sh").stat().st_mode) & 0o100


# -- what is wrong, or cannot be


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        shutil.copytree(_ROOT / name, tmp_path / "task")
        return tmp_path / "task"

    return make


@pytest.mark.parametrize(
    ("name", "lost", "message"),
    [
        ("harbor/greeting", "instruction.md", "the instruction is missing: there is no instr"),
        ("harbor/greeting", "tests/test.sh", "the tests are missing: there is no test.sh"),
        ("harbor/greeting", "environment", "the environment is missing: there is neither"),
        ("harbor/separate", "tests/Dockerfile", "the verifier's image is missing"),
        ("harbor/steps", "steps/extend", "steps: 'extend': there is no "),
        ("harbor/steps", "steps/begin/instruction.md", "the step's instruction is missing"),
        ("terminal-bench/hello-uv", "run-tests.sh", "the tests' script is missing"),
        ("terminal-bench/hello-uv", "Dockerfile", "the Dockerfile is missing"),
        ("terminal-bench/hello-uv", "task.yaml", "contains no task"),
    ],
)
def test_a_missing_file_is_named(
    name: str, lost: str, message: str, copy: Callable[[str], Path]
) -> None:
    folder = copy(name)
    path = folder / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(MissingFile, match=message) as caught:
        folder_tasks(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("task.toml", "[environment]\nos = 'Windows'", "it needs a machine with windows"),
        ("task.toml", "[environment]\ngpus = 1", "it needs an accelerator"),
        (
            "task.toml",
            "[[environment.mcp_servers]]\nname = 'a'\nurl = 'ws://b'",
            "its agent needs the tool server 'a' at 'ws://b', which is not an address of HTTP",
        ),
        ("task.toml", "[[verifier.collect]]\ncommand = 'a'\nservice = 'db'", "the service 'db'"),
        (
            "task.toml",
            "[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['1.2.3']",
            "allowed_hosts: not an address or a network: '1.2.3'",
        ),
        (
            "task.toml",
            "[agent]\nnetwork_mode = 'allowlist'\n"
            f"allowed_hosts = {[f'h{number}.org' for number in range(65)]}",
            "allowed_hosts: at most 64 hosts are allowed, found 65",
        ),
    ],
)
def test_what_a_sandbox_cannot_be_is_skipped(
    file: str, text: str, reason: str, copy: Callable[[str], Path]
) -> None:
    folder = copy("harbor/greeting")
    (folder / file).write_text(text)
    (task,) = folder_tasks(folder)
    assert task.skip
    assert re.search(reason, task.skip)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("task.yaml", "- a", "a mapping with an instruction is needed"),
        ("task.yaml", "instruction: a", "difficulty: this field is missing"),
        ("task.yaml", "instruction: a\ndifficulty: odd", "'odd' is not one of easy, medium, hard"),
        ("task.yaml", "a: [", r"task.yaml:2: not YAML"),
        ("docker-compose.yaml", "services: []", "services: a mapping of services is needed"),
        ("docker-compose.yaml", "services: {client: {build: [a]}}", "build: a text or a map"),
        ("docker-compose.yaml", "services: {client: {mem_limit: lots, build: .}}", "'lots' is no"),
        ("docker-compose.yaml", "services: {client: {}}", "client: build or image is needed"),
    ],
)
def test_a_wrong_file_of_terminal_bench_is_one_line(
    file: str, text: str, message: str, copy: Callable[[str], Path]
) -> None:
    folder = copy("terminal-bench/hello-uv")
    (folder / file).write_text(text)
    with pytest.raises(SuiteError, match=message) as caught:
        folder_tasks(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        (
            "task.yaml",
            "instruction: a\ndifficulty: easy\nparser_name: mlebench",
            "its parser 'mlebench' is not known; known are pytest, swebench",
        ),
        (
            "solution.yaml",
            "[{command: ':wq', append_enter: false}]",
            "solution.yaml types keys into a program (':wq')",
        ),
    ],
)
def test_what_terminal_bench_alone_can_do_is_skipped(
    file: str, text: str, reason: str, copy: Callable[[str], Path]
) -> None:
    folder = copy("terminal-bench/hello-uv")
    (folder / "solution.sh").unlink()
    (folder / file).write_text(text)
    (task,) = folder_tasks(folder)
    assert reason in (task.skip or "")


def test_tests_in_the_agents_shell_are_run_where_they_may(copy: Callable[[str], Path]) -> None:
    folder = copy("terminal-bench/hello-uv")
    file, key = folder / "task.yaml", "run_tests_in_same_shell: "
    file.write_text(file.read_text().replace(f"{key}false", f"{key}true"))
    (task,) = folder_tasks(folder)
    assert "--intercode-verifier=shared runs them there" in (task.skip or "")
    there = with_shared_verifier(task)
    assert there.skip is None
    assert there.verification is not None
    assert there.verification.place == "shell"


def test_a_verifier_of_its_own_stays_so(own: dict[str, Task]) -> None:
    assert with_shared_verifier(own["separate"]) == own["separate"]
    steps = with_shared_verifier(own["steps"]).steps
    assert [step.verification.place for step in steps] == ["agents"] * len(steps)


# -- what may be reached of the network


def policies(task: Task) -> list[tuple[bool, tuple[str, ...]]]:
    """Return whether the network may be reached, and which hosts, by the agent and the tests."""
    verification = task.verification
    assert verification is not None
    limits = [task.limits, verification.limits or task.limits]
    return [(each.network, each.hosts) for each in limits]


_NONE, _ALL = (False, ()), (True, ())
_HOST = (False, ("example.org",))


@pytest.mark.parametrize(
    ("text", "closed", "opened"),
    [
        ("", [_NONE, _NONE], [_ALL, _ALL]),
        ("[environment]\nallow_internet = true", [_NONE, _NONE], [_ALL, _ALL]),
        ("[environment]\nallow_internet = false", [_NONE, _NONE], [_NONE, _NONE]),
        ("[environment]\nnetwork_mode = 'no-network'", [_NONE, _NONE], [_NONE, _NONE]),
        ("[agent]\nnetwork_mode = 'no-network'", [_NONE, _NONE], [_NONE, _ALL]),
        ("[verifier]\nnetwork_mode = 'no-network'", [_NONE, _NONE], [_ALL, _NONE]),
        (
            "[environment]\nnetwork_mode = 'no-network'\n[agent]\nnetwork_mode = 'public'",
            [_NONE, _NONE],
            [_ALL, _NONE],
        ),
        (
            "[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['example.org']",
            [_HOST, _NONE],
            [_HOST, _ALL],
        ),
        (
            "[environment]\nnetwork_mode = 'allowlist'\nallowed_hosts = []",
            [_NONE, _NONE],
            [_NONE, _NONE],
        ),
    ],
)
def test_what_a_task_says_of_its_network_holds(
    text: str,
    closed: list[tuple[bool, tuple[str, ...]]],
    opened: list[tuple[bool, tuple[str, ...]]],
    copy: Callable[[str], Path],
) -> None:
    folder = copy("harbor/greeting")
    (folder / "task.toml").write_text(text)
    (task,) = folder_tasks(folder)
    assert policies(task) == closed
    assert policies(with_network(task)) == opened
    assert policies(with_network(task, override=True)) == [_ALL, _ALL]
    for now, with_flag in zip(
        policies(with_allowed_hosts(task, ["a.test"])),
        zip(closed, opened, strict=True),
        strict=True,
    ):
        (_, hosts), (whole, _) = with_flag
        assert now == (False, (*hosts, "a.test") if whole or hosts else ())


def test_one_step_without_a_network_is_a_task_without(copy: Callable[[str], Path]) -> None:
    folder = copy("harbor/steps")
    file = folder / "task.toml"
    text = file.read_text()
    before, table, after = text.partition("[steps.agent]\n")
    assert table
    file.write_text(f'{before}{table}network_mode = "no-network"\n{after}')
    (task,) = folder_tasks(folder)
    assert with_network(task).limits.network is False
    assert all(step.verification.limits is not None for step in task.steps)
    assert all(
        step.verification.limits is not None and step.verification.limits.network
        for step in with_network(task).steps
    )
    hosts = 'network_mode = "allowlist"\nallowed_hosts = ["a.test"]\n'
    file.write_text(f"{before}{table}{hosts}{after}")
    (task,) = folder_tasks(folder)
    assert task.skip == "its agent may reach other hosts in each step, and has one sandbox"


def test_tests_with_a_network_fetch_and_have_no_kit(copy: Callable[[str], Path]) -> None:
    def fetches(task: Task) -> bool:
        assert task.verification is not None
        return task.verification.fetches

    folder = copy("harbor/greeting")
    (folder / "task.toml").write_text("[agent]\nnetwork_mode = 'no-network'")
    (task,) = folder_tasks(folder)
    assert not fetches(task)
    assert fetches(with_network(task))
    assert not fetches(with_kit(with_network(task), "always"))
    assert fetches(with_kit(task, "never"))
    there = with_network(
        with_shared_verifier(task)
    )  # in the agent's own sandbox, which has no network
    assert not fetches(there)
    (folder / "task.toml").write_text("[verifier]\nnetwork_mode = 'no-network'")
    (task,) = folder_tasks(folder)
    assert not fetches(with_network(task))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("task.toml", f"metadata.{'.'.join('a' * 3000)} = 1"),
        ("environment/docker-compose.yaml", f"services: {{main: {{labels: {'[' * 99 * 9}"),
    ],
)
def test_what_is_nested_too_deeply_is_one_line(
    file: str, text: str, copy: Callable[[str], Path]
) -> None:
    folder = copy("harbor/greeting")
    (folder / file).write_text(text)
    with pytest.raises(SuiteError, match="nested") as caught:
        folder_tasks(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "megabytes", "message"),
    [
        ("instruction.md", 65, r"instruction.md: cannot be read: has more than 67,108,864 bytes"),
        ("solution/solve.sh", 17, "a solution is larger than 16 MiB"),
    ],
)
def test_a_file_that_is_too_large(
    file: str, megabytes: int, message: str, copy: Callable[[str], Path]
) -> None:
    folder = copy("harbor/greeting")
    with (folder / file).open("wb") as opened:
        opened.truncate(megabytes * _MEGABYTE)
    with pytest.raises(SuiteError, match=message):
        folder_tasks(folder)


def test_a_tag_of_a_folder_asks_for_nothing(copy: Callable[[str], Path]) -> None:
    folder = copy("harbor/greeting")
    (folder / "task.toml").write_text("[metadata]\ntags = ['network']")
    (task,) = folder_tasks(folder)
    assert (task.tags, task.needs_network) == (("network",), False)


def test_a_variable_that_the_host_has_not(
    copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy("harbor/greeting")
    (folder / "task.toml").write_text("[verifier.env]\nKEY = '${INTERCODE_A_KEY}'")
    passed = Permissions(variables=("INTERCODE_A_KEY",))
    with pytest.raises(MissingFile, match=r"KEY = .*: the environment variable .* is not set"):
        folder_tasks(folder, passed)
    monkeypatch.setenv("INTERCODE_A_KEY", "value")
    (task,) = folder_tasks(folder, passed)
    assert task.verification is not None
    assert task.verification.variables == (("KEY", "value"),)


def test_variables_of_the_host_are_passed_on_by_name_alone(
    copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERCODE_A_KEY", "secret")
    folder = copy("harbor/greeting")
    config = folder / "task.toml"
    config.write_text("[environment.env]\nKEY = '${INTERCODE_A_KEY}'")
    for variables in ((), ("INTERCODE_A",), ("INTERCODE_*",), ("KEY",)):
        with pytest.raises(MissingFile, match="--intercode-pass-env=INTERCODE_A_KEY") as caught:
            folder_tasks(folder, Permissions(variables=variables))
        assert "secret" not in str(caught.value)
    config.write_text("[environment.env]\nKEY = '${INTERCODE_A_KEY:-none}'")
    (task,) = folder_tasks(folder)
    assert task.variables == (("KEY", "none"),)


def test_a_variable_of_the_solution_concerns_gold_alone(copy: Callable[[str], Path]) -> None:
    folder = copy("harbor/greeting")
    (folder / "task.toml").write_text("[solution.env]\nKEY = '${INTERCODE_A_KEY}'")
    (task,) = folder_tasks(folder)
    assert (task.skip, task.gold) == (None, ())
    assert "--intercode-pass-env=INTERCODE_A_KEY" in (task.gold_skip or "")


def test_a_wrong_folder_among_others_is_a_task_that_is_skipped(tmp_path: Path) -> None:
    for name in ("greeting", "service"):
        shutil.copytree(_ROOT / "harbor" / name, tmp_path / "set" / name)
    (tmp_path / "set/greeting/task.toml").write_text("agent = 9")
    greeting, service = folder_tasks(tmp_path / "set")
    assert "agent: " in (greeting.skip or "")
    assert service.skip is None


def test_folders_with_equal_names_go_by_their_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(_ROOT / "harbor/service", tmp_path / "set" / name)
    assert [task.id for task in folder_tasks(tmp_path / "set")] == ["one", "two"]


def test_no_folder_keeps_the_others_from_being_read(tmp_path: Path) -> None:
    for name in ("a b", "a-b", "a_b", "odd"):
        shutil.copytree(_ROOT / "harbor/service", tmp_path / "set" / name)
    for name in ("a b", "a-b"):
        (tmp_path / "set" / name / "task.toml").write_text("agent = 9")
    odd = tmp_path / "set/odd/task.toml"
    odd.write_text("[environment.healthcheck]\ncommand = 'true'\nstart_period_sec = nan")
    tasks = {task.id: task for task in folder_tasks(tmp_path / "set")}
    assert list(tasks) == ["a-b", "a-b.2", "service", "odd"]
    assert re.search("cannot be read: ValueError: ", tasks["odd"].skip or "")
    assert tasks["service"].skip is None


# -- registries


def registry(folder: Path, text: str) -> Path:
    path = folder / "registry.json"
    path.write_text(text)
    return path


def test_a_registry(tmp_path: Path) -> None:
    shutil.copytree(_ROOT / "harbor/greeting", tmp_path / "tasks/greeting")
    shutil.copytree(_ROOT / "terminal-bench/links", tmp_path / "old/links")
    path = registry(
        tmp_path,
        '[{"name": "own", "version": "1.0", "description": "", "metrics": [],'
        ' "tasks": [{"name": "greeting", "git_url": null, "path": "tasks/greeting"}]},'
        ' {"name": "own", "version": "2.0", "tasks": [{"name": "x",'
        ' "git_url": "https://example.org/x.git", "git_commit_id": "abc", "path": "x"}]},'
        ' {"name": "old", "dataset_path": "old", "task_id_subset": null}]',
    )
    (task,) = registry_tasks(path.with_name("registry.json:own@1.0"))
    assert (task.id, task.suite) == ("greeting", "own")
    (task,) = registry_tasks(path.with_name("registry.json:old"))
    assert (task.id, task.suite) == ("links", "old")
    with pytest.raises(
        MissingFile, match=r"x is in the repository https://example.org/x.git, comm"
    ):
        registry_tasks(path.with_name("registry.json:own@2.0"))
    for wanted in ("registry.json", "registry.json:own", "registry.json:other"):
        with pytest.raises(
            ConfigurationError, match=r"of its datasets: own@1.0, own@2.0, old; give"
        ):
            registry_tasks(path.with_name(wanted))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("{}", "a registry must be a list of datasets"),
        ('[{"name": 1}]', "a registry must be a list of datasets"),
        ('[{"name": "a", "tasks": 1}]', "a: tasks: a list of tasks is needed"),
        ('[{"name": "a", "tasks": [{"name": "b"}]}]', "a: a task has no path"),
        ('[{"name": "a", "dataset_path": "x"}]', "a: there is no folder"),
    ],
)
def test_a_wrong_registry_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=message):
        registry_tasks(registry(tmp_path, text))


def test_a_dataset_may_be_a_folder_or_a_registry(tmp_path: Path) -> None:
    def named(name: str) -> list[str]:
        tasks = named_tasks(name, None, "--intercode-dataset", folder=_ROOT, env=None)
        return [task.id for task in tasks]

    assert named("harbor/greeting") == ["greeting"]
    assert len(named("terminal-bench")) == 10
    shutil.copytree(_ROOT / "harbor", tmp_path / "copied")
    path = registry(tmp_path, '[{"name": "a", "dataset_path": "copied"}]')
    assert len(named(str(path))) == len(named(f"{path}:a")) == 10
    with pytest.raises(ConfigurationError, match="or of a folder of task folders"):
        named("no-such-folder")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = registry(elsewhere, '[{"name": "a", "dataset_path": "../copied"}]')
    with pytest.raises(SuiteError, match=r"leads out of .*elsewhere.*--intercode-allow-path="):
        named(str(path))
    tasks = registry_tasks(path, Permissions(paths=(tmp_path / "copied",)))
    assert len(tasks) == 10
    with pytest.raises(MissingFile, match="contains no task: a task is a folder with"):
        named(str(tmp_path))
    with pytest.raises(SuiteError, match="json: contains no tasks"):
        named(str(registry(tmp_path, '[{"name": "a", "tasks": []}]')))


def test_artifacts_are_carried_whatever_loads_them(tmp_path: Path) -> None:
    folder = tmp_path / "task"
    shutil.copytree(_ROOT / "harbor/greeting", folder)
    text = 'artifacts = ["/usr/local/bin/tool/", "out", {source = "/x", service = "main"}]\n'
    (folder / "task.toml").write_text(text + (folder / "task.toml").read_text())
    (task,) = named_tasks("task", None, "", folder=tmp_path, env=None)
    assert task.verification is not None
    assert task.verification.carried == ("/usr/local/bin/tool", "/app/out", "/x")
