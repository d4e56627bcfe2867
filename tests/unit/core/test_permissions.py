"""What a suite of somebody else's may use of this machine: its own folder, and what is given."""

from __future__ import annotations

import ipaddress
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.core.hosts import is_private, is_public, parse_host
from pytest_intercode.core.permissions import NOTHING, Permissions
from pytest_intercode.core.task import Task
from pytest_intercode.errors import MissingFile, SuiteError
from pytest_intercode.suites.harbor.datasets import folder_tasks
from pytest_intercode.suites.loader import load_rows, load_suite
from pytest_intercode.system.archives import build_archive, context_files
from pytest_intercode.system.digest import digest
from pytest_intercode.system.suite_folder import SuiteFolder

_SECRET = "of the host"
_EXAMPLES = Path(__file__).parents[3] / "examples"
Copy = Callable[[str], Path]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder ``suite``, next to a folder ``host`` that is none of its."""
    (tmp_path / "suite/inner").mkdir(parents=True)
    (tmp_path / "suite/inner/file").write_text("ours")
    (tmp_path / "host/folder").mkdir(parents=True)
    (tmp_path / "host/secret").write_text(_SECRET)
    (tmp_path / "host/folder/secret").write_text(_SECRET)
    return tmp_path


def task(place: Path, fields: str, permissions: Permissions = NOTHING, env: str = "bash") -> Task:
    path = place / "suite/s.yaml"
    text = f"env: {env}\ntasks:\n  - id: a\n    query: q\n    gold: 'true'\n    {fields}\n"
    path.write_text(text.replace("HOST", str(place / "host")))
    (made,) = load_suite(path, permissions=permissions).tasks
    return made


_WAYS = ["HOST/secret", "../host/secret", "inner/../../host/secret", "link", "chain", "up/secret"]


def _links(place: Path) -> None:
    suite = place / "suite"
    (suite / "link").symlink_to(place / "host/secret")
    (suite / "chain").symlink_to("inner/chain")
    (suite / "inner/chain").symlink_to("../link")
    (suite / "up").symlink_to("../host")
    (suite / "folder").symlink_to("../host/folder")
    (suite / "same").symlink_to("inner/file")


@pytest.mark.parametrize("path", _WAYS)
@pytest.mark.parametrize(
    ("fields", "env"),
    [
        ("files: {{x: {{path: {}}}}}", "bash"),
        ("archive: {}", "bash"),
        ("archive: {{path: {}, at: /work}}", "bash"),
        ("dockerfile: {}", "bash"),
        ("database: {{engine: sqlite, name: shop, script: {}}}", "sql"),
        ("database: {{engine: sqlite, name: shop, script: [inner/file, {}]}}", "sql"),
        ("database: {{engine: sqlite, name: shop, file: {}}}", "sql"),
        ("verification: {{command: x, parser: status}}\n    repository: {{source: {}}}", "swe"),
        ("verification: {{command: x, parser: status, patch: {{path: {}}}}}", "swe"),
        ("verification: {{command: x, parser: status, files: {{a: {{path: {}}}}}}}", "swe"),
    ],
)
def test_no_field_of_a_suite_leads_out_of_its_folder(
    place: Path, fields: str, env: str, path: str
) -> None:
    _links(place)
    with pytest.raises(SuiteError) as caught:
        task(place, fields.format(path), env=env)
    said = str(caught.value)
    assert "leads out of" in said
    assert f"--intercode-allow-path={place / 'host'}" in said
    assert _SECRET not in said
    assert "\n" not in said
    task(place, fields.format(path), Permissions(paths=(place / "host",)), env)
    with pytest.raises(SuiteError, match="leads out of"):
        task(place, fields.format(path), Permissions(paths=(place / "host/folder",)), env)


@pytest.mark.parametrize("path", ["../host/nothing", "/nothing/at/all", "/etc/shadow"])
def test_whether_it_is_there_is_not_told(place: Path, path: str) -> None:
    with pytest.raises(SuiteError, match="leads out of") as caught:
        task(place, f"files: {{x: {{path: {path}}}}}")
    assert not isinstance(caught.value, MissingFile)


def test_gold_and_rows_are_read_in_the_folder(place: Path) -> None:
    _links(place)
    suite = place / "suite/s.yaml"
    suite.write_text("env: bash\ntasks: [{id: a, query: q, gold: {path: ../host/secret}}]\n")
    with pytest.raises(SuiteError, match="leads out of"):
        load_suite(suite)
    (place / "host/rows.jsonl").write_text('{"query": "q", "gold": "true"}\n')
    suite.write_text("env: bash\nrows: {path: ../host/rows.jsonl}\n")
    with pytest.raises(SuiteError, match="leads out of"):
        load_suite(suite)
    assert len(load_suite(suite, permissions=Permissions(paths=(place / "host",))).tasks) == 1
    rows = place / "suite/rows.jsonl"
    rows.write_text('{"query": "q", "gold": "true", "files": {"x": {"path": "link"}}}\n')
    with pytest.raises(SuiteError, match="leads out of"):
        load_rows(rows, "bash")


def test_anchors_and_overrides_are_checked_as_well(place: Path) -> None:
    suite = place / "suite/s.yaml"
    suite.write_text(
        "env: bash\ndefaults: {files: &all {x: {path: ../host/secret}}}\n"
        "tasks: [{id: a, query: q, gold: x, files: *all}]\n"
    )
    with pytest.raises(SuiteError, match="leads out of"):
        load_suite(suite)
    suite.write_text(
        "env: bash\ntasks: [{id: a, query: q, gold: x}]\n"
        "overrides: {a: {archive: ../host/folder}}\n"
    )
    with pytest.raises(SuiteError, match="leads out of"):
        load_suite(suite)


def test_links_that_stay_are_read(place: Path) -> None:
    _links(place)
    made = task(place, "files: {x: {path: same}}")
    assert made.files["x"].content == b"ours"
    made = task(place, "archive: same")
    assert made.archive is not None
    assert made.archive.path == place / "suite/inner/file"


def test_a_name_of_our_own_dockerfiles_leads_nowhere_else(place: Path) -> None:
    made = task(place, "dockerfile: bash")
    assert made.image is not None
    assert made.image.dockerfile is not None
    assert made.image.dockerfile.name == "bash.Dockerfile"
    for name in ("../dockerfiles/bash", "../../dockerfiles/bash"):
        with pytest.raises(SuiteError, match="leads out of"):
            task(place, f"dockerfile: {name}")


@pytest.mark.parametrize("name", ["pipe", "environ"])
def test_what_is_no_file_is_neither_read_nor_waited_for(place: Path, name: str) -> None:
    os.mkfifo(place / "suite/pipe")
    (place / "suite/environ").symlink_to("/proc/self/environ")
    with pytest.raises(SuiteError, match=r"is a FIFO, not a file|leads out of"):
        task(place, f"files: {{x: {{path: {name}}}}}")


def test_the_users_own_folder_may_be_a_link(place: Path) -> None:
    (place / "named").symlink_to("suite")
    (place / "suite/s.yaml").write_text(
        "env: bash\ntasks: [{id: a, query: q, gold: x, files: {x: {path: inner/file}}}]\n"
    )
    (made,) = load_suite(place / "named/s.yaml").tasks
    assert made.files["x"].content == b"ours"


def test_a_folder_that_is_allowed_has_to_be_there(place: Path) -> None:
    with pytest.raises(MissingFile, match=r"nowhere.*--intercode-allow-path.*cannot be opened"):
        task(place, "archive: ../x", Permissions(paths=(place / "nowhere",)))


# -- task folders


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    def copied(name: str) -> Path:
        target = tmp_path / "set" / Path(name).name
        shutil.copytree(_EXAMPLES / name, target, symlinks=True)
        (tmp_path / "host").mkdir(exist_ok=True)
        (tmp_path / "host/secret").write_text(_SECRET)
        return target

    return copied


def _replace(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("harbor/greeting", "task.toml"),
        ("harbor/greeting", "instruction.md"),
        ("harbor/greeting", "solution/key"),
        ("harbor/greeting", "solution/solve.sh"),
        ("harbor/greeting", "tests/test.sh"),
        ("harbor/greeting", "environment/Dockerfile"),
        ("harbor/greeting", "environment/docker-compose.yaml"),
        ("terminal-bench/counted", "task.yaml"),
        ("terminal-bench/counted", "run-tests.sh"),
        ("terminal-bench/counted", "docker-compose.yaml"),
        ("terminal-bench/counted", "Dockerfile"),
        ("terminal-bench/counted", "solution.sh"),
    ],
)
def test_no_file_of_a_task_folder_is_one_of_the_host(
    copy: Copy, tmp_path: Path, folder: str, path: str
) -> None:
    place = copy(folder)
    _replace(place / path, tmp_path / "host/secret")
    with pytest.raises(SuiteError, match=r"leads out of .*--intercode-allow-path="):
        folder_tasks(place)
    (made,) = folder_tasks(place.parent)  # among others
    assert "leads out of" in (made.skip or "")
    assert _SECRET not in repr(made)


@pytest.mark.parametrize("name", ["solution", "tests", "environment"])
def test_no_folder_of_a_task_is_one_of_the_host(copy: Copy, tmp_path: Path, name: str) -> None:
    place = copy("harbor/greeting")
    shutil.rmtree(place / name)
    (place / name).symlink_to(tmp_path / "host")
    with pytest.raises(SuiteError, match="leads out of"):
        folder_tasks(place)


def test_a_set_may_share_files(copy: Copy) -> None:
    place = copy("harbor/greeting")
    shared = place.parent / "shared.md"
    shared.write_text("Do it together.\n")
    _replace(place / "instruction.md", Path("../shared.md"))
    (made,) = folder_tasks(place.parent)
    assert made.query == "Do it together.\n"
    with pytest.raises(SuiteError, match="leads out of"):
        folder_tasks(place)  # by itself, it is all that is named


def test_a_fifo_is_no_instruction(copy: Copy) -> None:
    place = copy("harbor/greeting")
    (place / "instruction.md").unlink()
    os.mkfifo(place / "instruction.md")
    with pytest.raises(SuiteError, match=r"instruction.md: cannot be read: is a FIFO"):
        folder_tasks(place)


@pytest.mark.parametrize("name", ["../../victim", "/etc", "..", "", "a/b", "a\\u0000b"])
def test_a_step_has_a_name_and_no_path(copy: Copy, name: str) -> None:
    place = copy("harbor/greeting")
    (place / "task.toml").write_text(f'schema_version = "1.1"\n[[steps]]\nname = "{name}"\n')
    with pytest.raises(SuiteError, match="a name is needed that is one component of a path"):
        folder_tasks(place)


@pytest.mark.parametrize("target", ["{host}/secret", "../../../host/secret", "/nothing/here"])
def test_a_link_in_a_context_that_leads_out_is_refused(
    copy: Copy, tmp_path: Path, target: str
) -> None:
    place = copy("harbor/greeting")
    (place / "environment/key").symlink_to(target.format(host=tmp_path / "host"))
    (made,) = folder_tasks(place)
    assert made.image is not None
    assert made.image.dockerfile is not None
    with pytest.raises(SuiteError, match=r"environment/key: is a link that leads out of"):
        context_files(made.image.dockerfile)
    assert len(digest(made)) == 16


def test_a_link_in_a_context_that_stays_is_the_file(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "a").write_text("1")
    (tmp_path / "folder").symlink_to(".")
    found = context_files(tmp_path / "Dockerfile")
    assert found == [
        ("Dockerfile", tmp_path / "Dockerfile"),
        ("a", tmp_path / "a"),
        ("b", tmp_path / "a"),
    ]


def test_links_in_an_archive_are_links(place: Path) -> None:
    _links(place)
    made = task(place, "archive: {path: inner, at: /x}")
    assert _SECRET.encode() not in build_archive(made, 0.0)


# -- hosts


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:80", "127.0.0.2", "10.1.2.3", "192.168.0.0/16", "172.17.0.1:2375"),
        *("169.254.169.254", "168.63.129.16", "100.100.100.200", "0.0.0.0", "0.0.0.0/0"),
        *("8.0.0.0/5", "128.0.0.0/1", "::1", "::/0", "fe80::1", "fd00::/8", "::ffff:127.0.0.1"),
        *("64:ff9b::7f00:1", "2002:7f00:1::", "fd00:ec2::254", "224.0.0.1", "2000::/3"),
    ],
)
def test_a_suite_does_not_open_what_is_private(place: Path, host: str) -> None:
    fields = f'network: ["{host}"]'
    with pytest.raises(SuiteError, match=r"network: .* is of this machine or of a private") as said:
        task(place, fields)
    named = str(said.value).rpartition("--intercode-allow-host=")[2]
    assert task(place, fields, Permissions(hosts=(named,))).limits.hosts == (named,)
    assert task(place, fields, Permissions(network=True)).limits.hosts
    with pytest.raises(SuiteError):
        task(place, fields, Permissions(hosts=("10.255.255.255", "example.org")))


def test_a_wider_host_of_the_users_covers_a_narrower_one(place: Path) -> None:
    wide = Permissions(hosts=("10.0.0.0/8",))
    assert task(place, 'network: ["10.1.2.3", "10.1.0.0/16"]', wide).limits.hosts
    with pytest.raises(SuiteError, match=r"10\.1\.2\.3:22"):
        task(place, 'network: ["10.1.2.3:22"]', wide)
    with pytest.raises(SuiteError, match=r"10\.0\.0\.0/7"):
        task(place, 'network: ["10.0.0.0/7"]', wide)


@pytest.mark.parametrize("host", ["pypi.org", "*.example.org:8443", "1.1.1.1", "151.101.0.0/16"])
def test_a_suite_lists_public_hosts_itself(place: Path, host: str) -> None:
    made = task(place, f'network: ["{host}"]')
    assert (made.limits.hosts, made.needs_network) == ((host,), False)


def test_the_whole_network_is_for_the_user_to_give(place: Path) -> None:
    made = task(place, "network: true")
    assert (made.limits.network, made.needs_network) == (False, True)
    made = task(place, "network: true", Permissions(network=True))
    assert made.limits.network


_ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))


@given(_ADDRESSES, st.integers(0, 128))
def test_a_range_is_private_if_an_address_in_it_is(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, length: int
) -> None:
    whole = ipaddress.ip_network(f"{address}/{min(length, address.max_prefixlen)}", strict=False)
    if not is_public(address) and not _is_example(address):
        assert is_private(parse_host(str(whole)))


def _is_example(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether it is one of those that only stand in documentation."""
    ranges = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")
    return any(address in ipaddress.ip_network(each) for each in ranges)


# -- the folder


def test_a_suite_path_is_no_path_for_others(place: Path) -> None:
    with SuiteFolder(place / "suite", NOTHING) as top:
        assert not isinstance(top, (str, os.PathLike))
        with pytest.raises(TypeError):
            open(top)  # type: ignore[call-overload]  # noqa: PTH123, SIM115
        assert [name for name, _ in top.files()] == ["inner/file"]
        assert [str(path) for path in top.iterdir()] == [str(place / "suite/inner")]
        inner = top / "inner" / "file"
        assert (inner.name, inner.suffix, str(inner.parent)) == (
            "file",
            "",
            str(place / "suite/inner"),
        )
        assert inner.read_text() == "ours"
        assert not (top / "nothing").exists()
