"""Compose files of task folders are read as Docker Compose and Harbor read them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_intercode.core.machine import HealthCheck, Services
from pytest_intercode.core.permissions import Permissions
from pytest_intercode.core.task import Archive, FileSpec, Task
from pytest_intercode.environments.task_json import task_from_json, task_to_json
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.harbor.datasets import folder_tasks
from pytest_intercode.suites.harbor.parts import MissingVariable
from pytest_intercode.system.archives import pack_files, unpack_files
from pytest_intercode.system.digest import digest

_ROOT = Path(__file__).parents[4] / "examples"


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        shutil.copytree(_ROOT / name, tmp_path / "task")
        return tmp_path / "task"

    return make


def harbor(folder: Path, text: str, *, passed: tuple[str, ...] = ()) -> Task:
    (folder / "environment/docker-compose.yaml").write_text(text)
    (task,) = folder_tasks(folder, Permissions(variables=passed))
    return task


def terminal_bench(folder: Path, client: str) -> Task:
    """Return the task of a folder whose service is built and has these lines."""
    text = f"services: {{client: {{build: ., {client}}}}}"
    (folder / "docker-compose.yaml").write_text(text)
    (task,) = folder_tasks(folder)
    return task


# -- what a file may say


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "services: {}",
        "services: {main: {}}",
        "volumes: {data: {}}\nnetworks: {inner: {internal: true}, default: {}}\nx-own: {a: 1}",
        "services: {main: {network_mode: '${NETWORK_MODE:-bridge}', privileged: false, tty: true}}",
        "services: {main: {command: [sh, -c, sleep infinity], user: root, restart: no}}",
        "services: {main: {depends_on: {none: {condition: service_started, required: false}}}}",
        "services: {main: {ports: ['80:80'], environment: [NOT_OF_THIS_MACHINE]}}",
        "services: {main: {deploy: {resources: {limits: {cpus: '${CPUS}', memory: '${MEMORY}'}}}}}",
        "services: {main: {volumes: ['${HOST_VERIFIER_LOGS_PATH}:${ENV_VERIFIER_LOGS_PATH}', "
        "'${HOST_AGENT_LOGS_PATH:-./logs}:${ENV_AGENT_LOGS_PATH:-/logs}', "
        "'${HOST_ARTIFACTS_PATH}:${ENV_ARTIFACTS_PATH}']}}",
    ],
)
def test_what_makes_no_difference(text: str, copy: Callable[[str], Path]) -> None:
    folder = copy("harbor/greeting")
    (plain,) = folder_tasks(folder)
    assert harbor(folder, text) == plain


def test_harbor_reads_a_file_of_one_name_alone(copy: Callable[[str], Path]) -> None:
    folder = copy("harbor/greeting")
    (plain,) = folder_tasks(folder)
    for name in ("docker-compose.yml", "compose.yaml"):  # the subject of a task, say
        (folder / "environment" / name).write_text("services: {web: {privileged: true}}")
    assert folder_tasks(folder) == [plain]


def test_a_platform_and_a_network_that_leads_nowhere(copy: Callable[[str], Path]) -> None:
    folder = copy("harbor/users")
    task = harbor(folder, "services: {main: {platform: linux/amd64}}")
    assert (task.skip, str(task.platform), task.limits.offline) == (None, "linux/amd64", False)
    for text in (
        "services: {main: {network_mode: none}}",
        "networks: {default: {internal: true}}",
        "services: {main: {networks: [in]}}\nnetworks: {in: {internal: true}}",
    ):
        assert harbor(folder, text).limits.offline
    assert terminal_bench(copy_of(folder, "hello-uv"), "network_mode: none").limits.offline


def copy_of(other: Path, name: str) -> Path:
    return Path(shutil.copytree(_ROOT / "terminal-bench" / name, other.with_name(name)))


def test_variables(copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "here")
    folder = copy("harbor/greeting")
    (folder / "environment/own.env").write_text("# a comment\nA=1\n\nB=of the file\n")
    text = (
        "services: {main: {env_file: [own.env, {path: none.env, required: false}], environment: "
        "{B: 2, C: true, D: '$$x', E: '${GIVEN:-nothing}', GIVEN: null, OTHER: null}}}"
    )
    task = harbor(folder, text)
    assert task.variables == (("A", "1"), ("B", "2"), ("C", "true"), ("D", "$x"), ("E", "nothing"))
    passed = dict(harbor(folder, text, passed=("GIVEN",)).variables)
    assert (passed["E"], passed["GIVEN"]) == ("here", "here")


def test_what_is_a_text_in_yaml_1_2_stays_as_it_is_written(copy: Callable[[str], Path]) -> None:
    text = (
        "services: {main: {environment: {A: yes, B: Off, C: 12:30, D: True, NO: 1}, privileged: no,"
        " restart: no, command: [serve, --at, 12:30, --log, on, --fast, true]}}"
    )
    task = harbor(copy("harbor/greeting"), text)
    expected = (("A", "yes"), ("B", "Off"), ("C", "12:30"), ("D", "true"), ("NO", "1"))
    assert task.variables == expected
    assert "setsid -f serve --at 12:30 --log on --fast true" in task.setup[0]


def test_variables_of_the_file_next_to_it(copy: Callable[[str], Path]) -> None:
    folder = copy("harbor/greeting")
    (folder / "environment/.env").write_text("A='of it'\nTEST_DIR=/other\n")
    task = harbor(folder, "services: {main: {environment: {A: $A, B: $TEST_DIR}}}")
    assert task.variables == (("A", "of it"), ("B", "/tests"))


def test_a_command_runs_beside_the_agent(copy: Callable[[str], Path]) -> None:
    folder = copy("harbor/greeting")
    text = "services: {main: {command: 'nginx -g \"daemon off;\"'}}"
    assert "setsid -f nginx -g 'daemon off;'" in harbor(folder, text).setup[0]
    text = "services: {main: {entrypoint: /begin, command: [serve]}}"
    assert "setsid -f /begin serve" in harbor(folder, text).setup[0]


def test_an_entry_point_is_split_as_a_shell_does(copy: Callable[[str], Path]) -> None:
    task = harbor(copy("harbor/greeting"), "services: {main: {entrypoint: \"/run 'a b'\"}}")
    assert "setsid -f /run 'a b' sh -c 'sleep infinity'" in task.setup[0]


def test_a_health_check_is_waited_for(copy: Callable[[str], Path]) -> None:
    folder = copy("harbor/greeting")
    check = "{test: [CMD-SHELL, 'test -e /run/ready'], interval: 1m30s, timeout: 500ms, retries: 4}"
    task = harbor(folder, f"services: {{main: {{healthcheck: {check}}}}}")
    (command,) = task.setup
    assert "timeout 0.5 bash -c '/bin/sh -c '\"'\"'test -e /run/ready'" in command
    assert "[ $failed -lt 4 ]" in command
    assert "sleep 90;" in command
    assert not harbor(folder, "services: {main: {healthcheck: {disable: true}}}").setup


# -- what a file shares


def test_the_tasks_own_folder_comes_as_a_copy_without_its_secrets(
    copy: Callable[[str], Path],
) -> None:
    folder = copy("terminal-bench/hello-uv")
    (folder / "data").mkdir()
    (folder / "data/rows.csv").write_text("1\n")
    task = terminal_bench(folder, "volumes: ['./:/work:ro']")
    assert task.skip is None
    (mount,) = task.mounts
    files = unpack_files(pack_files({}, "/", 0.0, mount))
    assert "/work/data/rows.csv" in files
    assert not [name for name in files if "solution" in name or "test" in name]
    verification = task.verification
    assert verification is not None
    assert Archive(folder / "tests", "/work/tests") in verification.archives
    assert (
        verification.files["/work/run-tests.sh"].content == (folder / "run-tests.sh").read_bytes()
    )
    assert task_from_json(task_to_json(task)) == task
    before = digest(task)
    (folder / "data/rows.csv").write_text("2, and more\n")
    (task,) = folder_tasks(folder)
    assert digest(task) != before


@pytest.mark.parametrize(
    ("volume", "files", "setup"),
    [
        ("./Dockerfile:/etc/file", {"/etc/file"}, []),
        ("{type: bind, source: ./Dockerfile, target: /etc/file}", {"/etc/file"}, []),
        ("./none:/out", set(), ["mkdir -p -m 755 -- /out"]),
        ("./solution.sh:/oracle/solution.sh", set(), []),
        ("./tests:/checks", set(), ["mkdir -p -m 755 -- /checks"]),
        ("scratch:/data", set(), ["mkdir -p -m 755 -- /data"]),
        ("/anonymous", set(), ["mkdir -p -m 755 -- /anonymous"]),
        ("{type: tmpfs, target: /fast}", set(), ["mkdir -p -m 1777 -- /fast"]),
    ],
)
def test_files_folders_and_what_is_not_shared(
    volume: str, files: set[str], setup: list[str], copy: Callable[[str], Path]
) -> None:
    folder = copy("terminal-bench/hello-uv")
    task = terminal_bench(folder, f"volumes: [{volume if '{' in volume else repr(volume)}]")
    assert task.skip is None
    logs = {"/logs/", "/agent-logs/"}
    assert set(task.files) - logs == files
    assert not task.mounts
    assert list(task.setup) == setup
    assert task.verification is not None
    tests = {archive.at for archive in task.verification.archives}
    assert tests == ({"/checks", "/tests"} if "tests" in volume else {"/tests"})


def test_tmpfs_is_a_folder_of_everybodys(copy: Callable[[str], Path]) -> None:
    task = terminal_bench(copy("terminal-bench/hello-uv"), "tmpfs: '/run/x:size=64m'")
    assert task.setup == ("mkdir -p -m 1777 -- /run/x",)


def test_a_file_keeps_its_mode(copy: Callable[[str], Path]) -> None:
    folder = copy("terminal-bench/hello-uv")
    (folder / "begin").write_bytes(b"x")
    (folder / "begin").chmod(0o755)
    task = terminal_bench(folder, "volumes: ['./begin:/begin']")
    assert task.files["/begin"] == FileSpec("file", b"x", mode=0o755)


# -- services

_SERVICES = """
services:
  web:
    build: {context: ./web, dockerfile: Web.Dockerfile}
    command: serve --port '80 80'
    container_name: site
    depends_on: {db: {condition: service_healthy}, main: {condition: service_started}}
    networks: {front: {aliases: [www]}, back: null}
    links: [db, "db:data"]
    restart: unless-stopped
    ports: ["80:80"]
  main:
    depends_on: {seed: {condition: service_completed_successfully}}
    networks: [front]
    volumes: ["shared:/shared:ro", "own:/own"]
  db:
    image: postgres
    environment: {A: "${A:-1}"}
    volumes: ["shared:/data", "./init:/init:ro", "./web/Web.Dockerfile:/etc/one"]
    tmpfs: /fast
    mem_limit: 1g
    cpus: 0.5
    networks: [back]
    healthcheck: {test: [CMD, pg_isready], interval: 2s, retries: 5, start_period: 3s}
  seed: {image: postgres, entrypoint: [sh, -c, seed], user: "1:1", networks: [back]}
  tool: {image: debian, profiles: [debug], privileged: true}
networks: {front: {driver: bridge}, back: {internal: true}}
volumes: {shared: null, own: null}
"""


@pytest.fixture
def several(copy: Callable[[str], Path]) -> Task:
    folder = copy("harbor/greeting")
    for name in ("web/Web.Dockerfile", "init/1.sql"):
        path = folder / "environment" / name
        path.parent.mkdir()
        path.write_text("FROM debian\n")
    return harbor(folder, _SERVICES)


def test_services_are_read_in_the_order_in_which_they_start(several: Task) -> None:
    assert several.skip is None
    machines = {machine.name: machine for machine in several.services.machines}
    names = list(machines)
    assert sorted(names) == ["db", "seed", "web"]
    assert names.index("db") < names.index("web")
    web, db, seed = machines["web"], machines["db"], machines["seed"]
    assert web.image.dockerfile is not None
    assert web.image.dockerfile.name == "Web.Dockerfile"
    assert web.command == ("serve", "--port", "80 80")
    assert (web.aliases, web.networks) == (("site", "www"), ("front", "back"))
    assert (web.depends_on, web.restarts) == ((("db", "healthy"),), "always")
    assert web.health == HealthCheck()  # the image's own, if it has one
    assert (db.image.image, db.aliases) == ("postgres", ("data",))
    assert db.variables == (("A", "1"),)
    assert db.health == HealthCheck(("pg_isready",), 2.0, 30.0, 5, 3.0)
    assert (db.volumes, db.tmpfs) == ((("shared", "/data"),), ("/fast",))
    assert [mount.at for mount in db.mounts] == ["/init"]
    assert dict(db.files)["/etc/one"].content == b"FROM debian\n"
    assert (db.limits.memory, db.limits.cpus) == (1024**3, 0.5)
    assert (seed.entrypoint, seed.command, seed.user) == (("sh", "-c", "seed"), None, "1:1")


def test_the_agents_machine_has_its_share(several: Task) -> None:
    services = several.services
    assert (services.names, services.networks) == (("main",), ("front",))
    assert services.volumes == (("shared", "/shared"),)  # nobody else has the other one
    assert services.read_only == ("/shared",)
    assert services.depends_on == (("seed", "completed"),)
    assert task_from_json(task_to_json(several)) == several
    assert digest(several) != digest(replace(several, services=Services()))


@pytest.mark.parametrize(
    ("services", "message"),
    [
        ("a: {image: x, depends_on: [b]}", "there is no b, which a depends on"),
        ("main: {depends_on: [b]}, a: {image: x}", "services: there is no b"),
        (
            "a: {image: x, depends_on: [b]}, b: {image: x, depends_on: [a]}",
            "they wait for each other",
        ),
        ("a: {}", "a: build or image is needed"),
        ("a: {image: x, privileged: true}", "a uses privileged"),
        ("a: {image: x, network_mode: host}", "a uses network_mode host"),
        ("a: {image: x, volumes: ['/etc:/etc']}", "a shares the volume '/etc:/etc' with the host"),
        ("a: {image: x, depends_on: {main: {condition: service_healthy}}}", "a waits for main"),
        (", ".join(f"a{n}: {{image: x}}" for n in range(13)), "has more than 12 services"),
        ("main: {depends_on: [a]}, a: {image: x, profiles: [b]}", "services: there is no a"),
        ("a b: {image: x}", "'a b' is not a valid name: at most"),
        ("a: {image: x, tmpfs: [/proc]}", "a shares the volume"),
        ("a: {image: x, tmpfs: [b]}", "a shares the volume"),
        ("a: {image: x, volumes: [{source: b, target: /b, volume: {subpath: c}}]}", "a subpath"),
        ("a: {image: x, networks: [b]}", "a: networks: there is no network 'b'"),
    ],
)
def test_wrong_services_are_one_line(
    services: str, message: str, copy: Callable[[str], Path]
) -> None:
    folder = copy("harbor/greeting").parent
    (folder / "task/environment/docker-compose.yaml").write_text(f"services: {{{services}}}")
    (task,) = folder_tasks(folder)
    assert message in (task.skip or "")
    assert "\n" not in (task.skip or "")


def test_no_service_gets_the_solution_or_the_tests(copy: Callable[[str], Path]) -> None:
    folder = copy("terminal-bench/hello-uv")
    text = "services: {client: {build: .}, web: {image: x, volumes: ['./:/srv', './tests:/t']}}"
    (folder / "docker-compose.yaml").write_text(text)
    (task,) = folder_tasks(folder)
    (web,) = task.services.machines
    (mount,) = web.mounts
    names = unpack_files(pack_files({}, "/", 0.0, mount))
    assert "/srv/Dockerfile" in names
    assert not [name for name in names if "solution" in name or "test" in name]


# -- what is refused, and what is wrong


@pytest.mark.parametrize(
    ("main", "reason"),
    [
        ("privileged: true", "main uses privileged"),
        ("cap_add: [SYS_ADMIN], devices: [/dev/kvm]", "main uses cap_add, devices"),
        ("network_mode: host", "main uses network_mode host"),
        ("network_mode: 'container:other'", "main uses network_mode container:other"),
        ("pid: host", "main uses pid"),
        (
            "volumes: ['/var/run/docker.sock:/var/run/docker.sock']",
            "main shares the volume '/var/run/docker.sock:/var/run/docker.sock' with the host",
        ),
        ("volumes: ['${HOME}/.aws:/root/.aws']", "'/.aws:/root/.aws' with the host"),
        ("volumes: ['~/.aws:/root/.aws']", "'~/.aws:/root/.aws' with the host"),
        ("volumes: ['${NO}:${NO}']", "main shares the volume ':'"),
        ("volumes: ['./:/']", "main shares the volume './:/'"),
        ("volumes: ['../../../..:/x']", "a suite reads what is in its own folder"),
        ("build: {context: ../..}", "build: context '../..' with dockerfile 'Dockerfile'"),
        ("build: {context: ., args: {A: 1}}", "build uses args"),
        ("deploy: {replicas: 2}", "main uses 2 replicas"),
        (
            "deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}}",
            "main uses devices of deploy",
        ),
        ("env_file: ../tests/test.sh", "test.sh is of the solution or the tests"),
        ("build: web", "build: 'web' is of the solution or the tests"),
        (
            "networks: {default: {ipv4_address: 10.0.0.2}}",
            "main uses the network default with settings of its own",
        ),
        ("healthcheck: {test: [1, 2]}", "main has the health check [1, 2]"),
        (
            "platform: windows/amd64",
            "platform 'windows/amd64': linux/ARCHITECTURE is needed, as linux/amd64 or "
            "linux/arm64; sandboxes run Linux",
        ),
    ],
)
def test_what_a_machine_cannot_be_is_one_line(
    main: str, reason: str, copy: Callable[[str], Path]
) -> None:
    folder = copy("harbor/greeting").parent  # among others, so that it is skipped
    (folder / "task/environment/web").symlink_to("../tests")
    (folder / "task/environment/docker-compose.yaml").write_text(f"services: {{main: {{{main}}}}}")
    (task,) = folder_tasks(folder)
    assert reason in (task.skip or "")
    assert "\n" not in (task.skip or "")
    assert task.image is None


def test_other_keys_of_a_file_are_refused(copy: Callable[[str], Path]) -> None:
    folder = copy("harbor/greeting")
    assert harbor(folder, "secrets: {}").skip == "docker-compose.yaml uses secrets"
    for settings in ("external: true", "driver_opts: {type: none, device: /etc, o: bind}"):
        text = f"services: {{main: {{volumes: ['a:/b']}}}}\nvolumes: {{a: {{{settings}}}}}"
        assert "main uses the volume a with settings of its own" in str(harbor(folder, text).skip)


def test_no_variable_of_the_solution_is_shared(copy: Callable[[str], Path]) -> None:
    folder = copy("harbor/greeting")
    (folder / "environment/.env").symlink_to("../solution/solve.sh")
    assert harbor(folder, "services: {}").skip == (
        "docker-compose.yaml: .env is of the solution or the tests"
    )
    (folder / "environment/.env").unlink()
    task = harbor(folder, "services: {main: {volumes: ['..:/a', '../task.toml:/b']}}")
    assert [mount.exclude for mount in task.mounts] == [("solution", "steps", "task.toml", "tests")]
    assert "/b" not in task.files


@pytest.mark.parametrize("target", ["solution", "."])
def test_no_agent_is_in_the_folder_of_the_solution(
    target: str, copy: Callable[[str], Path]
) -> None:
    folder = copy("harbor/greeting")
    shutil.rmtree(folder / "environment")
    (folder / "environment").symlink_to(target)
    with pytest.raises(SuiteError, match=r"environment: leads to .*, which the agent must not see"):
        folder_tasks(folder)


def test_a_variable_that_is_needed_has_to_be_passed_on(copy: Callable[[str], Path]) -> None:
    with pytest.raises(MissingVariable, match="KEY is needed: of the shop; --intercode-pass-env="):
        harbor(copy("harbor/greeting"), "services: {main: {user: '${KEY:?of the shop}'}}")


@pytest.mark.parametrize(
    ("client", "message"),
    [
        ("mem_limit: lots", "'lots' is not a memory size"),
        ("cpus: lots", "cpus: 'lots' is not a number"),
        ("healthcheck: {test: a, interval: soon}", "'soon' is not a time"),
        ("mem_limit: 1", "1 is not a memory size"),
        ("cpus: .nan", "cpus: nan is not a number"),
        ("cpus: -1", "cpus: -1 is not a number"),
        ("volumes: 3", "client: volumes: a list is needed, found 3"),
        ("environment: A=b", "client: environment: a list or a mapping is needed, found 'A=b'"),
        ("environment: {A: [1]}", "client: environment: A: a text is needed"),
        ("environment: ['=x']", "client: environment: '' is not a variable"),
        ("environment: [A: b]", "client: environment: a list of texts is needed, found {'A': 'b'}"),
        ("entrypoint: {a: b}", "client: entrypoint: a text or a list is needed"),
        ("command: [a, null]", "client: command: a list of texts is needed, found None"),
        ('command: "a \'b"', "client: command: no closing quotation"),
        ("working_dir: here", "client: working_dir: an absolute path is needed"),
        ("restart: often", "client: restart: 'often' is not one of no, always"),
        ("healthcheck: {test: a, retries: .inf}", "retries: 'inf' is not a whole number"),
        ("healthcheck: {test: a, retreis: 3}", "healthcheck: there is no 'retreis'"),
        ("depends_on: {a: b}", "client: depends_on: a: a mapping is needed"),
        ("image: '${A:-'", "a brace is not closed"),
        ("env_file: none.env", "a file of variables is missing: there is no none.env"),
    ],
)
def test_a_wrong_service_is_one_line(
    client: str, message: str, copy: Callable[[str], Path]
) -> None:
    with pytest.raises(SuiteError, match=message) as caught:
        terminal_bench(copy("terminal-bench/hello-uv"), client)
    assert "\n" not in str(caught.value)


def test_lists_instead_of_mappings_are_one_line(copy: Callable[[str], Path]) -> None:
    with pytest.raises(SuiteError, match="volumes and networks must be mappings"):
        harbor(copy("harbor/greeting"), "services: {}\nnetworks: [a]")


def test_the_service_of_terminal_bench_may_have_another_name(copy: Callable[[str], Path]) -> None:
    folder = copy("terminal-bench/hello-uv")
    file = folder / "docker-compose.yaml"
    name = "container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}"
    file.write_text(f"services:\n  agent:\n    build: .\n    working_dir: /w\n    {name}\n")
    (task,) = folder_tasks(folder)
    assert (task.skip, task.workdir) == (None, "/w")
    file.write_text("services: {agent: {build: ., working_dir: /only}}")
    (task,) = folder_tasks(folder)
    assert (task.skip, task.workdir) == (None, "/only")
    file.write_text("services: {agent: {build: .}, db: {image: x}}")
    with pytest.raises(SuiteError, match="services: there is no client, in which the agent runs"):
        folder_tasks(folder)
