"""What tasks and agents name reaches a node by its content, and is the same there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_intercode.core.task import Archive, Database, ImageSource, Task, Verification
from pytest_intercode.environments.sql.fields import SqlFields
from pytest_intercode.errors import ConfigurationError, InfrastructureError
from pytest_intercode.rollouts.cluster.files import FileCache, FileIndex, FileRef, with_paths
from pytest_intercode.system.files import bundled_folder


def _sent(
    index: FileIndex, cache: FileCache, path: Path, elsewhere: Path = Path("/nonexistent")
) -> Path:
    ref = index.ref(path)
    assert ref is not None
    assert cache.path_of(elsewhere, ref) is None, "it is not there yet"
    cache.receive(ref, index.pieces(ref.digest))
    found = cache.path_of(elsewhere, ref)
    assert found is not None
    return found


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(tmp_path / "store")


def test_a_file_arrives_as_it_is_under_its_own_name(tmp_path: Path, cache: FileCache) -> None:
    (tmp_path / "a.sql").write_bytes(b"\x00\xff" * 3_000_000)
    found = _sent(FileIndex(), cache, tmp_path / "a.sql")
    assert found.name == "a.sql"
    assert found.read_bytes() == b"\x00\xff" * 3_000_000
    assert found.is_relative_to(cache.folder)
    assert (cache.folder.stat().st_mode & 0o777) == 0o700


def test_a_folder_keeps_modes_times_and_links(tmp_path: Path, cache: FileCache) -> None:
    folder = tmp_path / "data"
    (folder / "below").mkdir(parents=True)
    (folder / "below/run").write_text("x")
    (folder / "below/run").chmod(0o755)
    (folder / "link").symlink_to("below/run")
    found = _sent(FileIndex(), cache, folder)
    assert (found / "below/run").stat().st_mode & 0o777 == 0o755
    before, after = (each / "below/run" for each in (folder, found))
    assert int(before.stat().st_mtime) == int(after.stat().st_mtime)
    assert (found / "link").readlink() == Path("below/run")


def test_a_dockerfile_brings_what_its_build_may_use(tmp_path: Path, cache: FileCache) -> None:
    (tmp_path / "my").mkdir()
    (tmp_path / "my/seed").write_text("x")
    (tmp_path / "other").write_text("x")
    (tmp_path / "my.Dockerfile").write_text("FROM debian\nCOPY my/seed /\n")
    found = _sent(FileIndex(), cache, tmp_path / "my.Dockerfile")
    assert found.name == "my.Dockerfile"
    assert {each.name for each in found.parent.rglob("*")} == {"my.Dockerfile", "my", "seed"}


def test_what_the_package_holds_is_not_sent(cache: FileCache) -> None:
    ours = bundled_folder("dockerfiles") / "bash.Dockerfile"
    ref = FileIndex().ref(ours)
    assert ref == FileRef("", "bundled", "dockerfiles/bash.Dockerfile")
    assert cache.path_of(Path("/nonexistent"), ref) == ours


@pytest.mark.parametrize("name", ["a.sql", "my", "my.Dockerfile"])
def test_nodes_of_one_machine_may_receive_the_same_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.sql").write_text("x" * 10_000)
    (tmp_path / "my.Dockerfile").write_text("FROM debian\nCOPY my /\n")
    for number in range(20):
        (tmp_path / f"my/{number}").mkdir(parents=True)
        (tmp_path / f"my/{number}/file").write_text(str(number) * 1000)
    index = FileIndex()
    ref = index.ref(tmp_path / name)
    assert ref is not None
    pieces = list(index.pieces(ref.digest))
    caches = [FileCache(tmp_path / "store") for _ in range(4)]
    begin = threading.Barrier(len(caches))

    def receive(cache: FileCache) -> list[tuple[str, bytes]]:
        """Receive it, and read at once what is there then."""
        begin.wait()
        cache.receive(ref, pieces)
        found = cache.path_of(Path("/nonexistent"), ref)
        assert found is not None
        files = found.parent.rglob("*") if name == "my.Dockerfile" else [found, *found.rglob("*")]
        return sorted((path.name, path.read_bytes()) for path in files if path.is_file())

    with ThreadPoolExecutor(len(caches)) as threads:
        first, *others = threads.map(receive, caches)
    assert len(first) == {"a.sql": 1, "my": 20, "my.Dockerfile": 21}[name]
    assert all(other == first for other in others)
    assert len(list(caches[0].folder.iterdir())) == 1, "and nothing else stays"


def test_a_file_that_both_see_is_read_where_it_is(tmp_path: Path, cache: FileCache) -> None:
    path = tmp_path / "shared"
    path.write_text("same")
    ref = FileIndex().ref(path)
    assert ref is not None
    assert cache.path_of(path, ref) == path
    path.write_text("else")
    assert cache.path_of(path, ref) is None


def test_what_does_not_arrive_as_it_was_is_not_kept(tmp_path: Path, cache: FileCache) -> None:
    (tmp_path / "a").write_text("right")
    ref = FileIndex().ref(tmp_path / "a")
    assert ref is not None
    with pytest.raises(InfrastructureError, match="did not arrive as it was"):
        cache.receive(ref, [b"wro", b"ng"])
    assert not list(cache.folder.iterdir())
    assert cache.path_of(Path("/nonexistent"), ref) is None


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "tasks/../../x"])
def test_a_ref_names_nothing_outside(cache: FileCache, name: str) -> None:
    with pytest.raises(InfrastructureError):
        cache.path_of(Path("/nonexistent"), FileRef("", "bundled", name))
    with pytest.raises(InfrastructureError):
        cache.path_of(Path("/nonexistent"), FileRef(name, "folder"))


def test_an_agents_folder_leaves_tools_behind_and_has_a_limit(tmp_path: Path) -> None:
    for name in ("agent.py", "lib/beside.py", ".git/objects", ".venv-x/lib/a", "env/pyvenv.cfg"):
        (tmp_path / "agent" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "agent" / name).write_text(name)
    index, cache = FileIndex(), FileCache(tmp_path / "store")
    ref = index.agent(tmp_path / "agent", "--intercode-agent=agent/agent.py:A")
    cache.receive(ref, index.pieces(ref.digest))
    found = cache.path_of(Path("/nonexistent"), ref)
    assert found is not None
    names = {str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()}
    assert names == {"agent.py", "lib/beside.py"}
    with (tmp_path / "agent/large").open("wb") as file:
        file.truncate(65 * 1024**2)
    with pytest.raises(ConfigurationError, match="put the agent into its own folder"):
        FileIndex().agent(tmp_path / "agent", "--intercode-agent=agent/agent.py:A")


def test_every_path_of_a_task_is_found_and_replaced() -> None:
    paths = [Path(f"/data/{number}") for number in range(6)]
    task = Task(
        *("t", "q", ("true",), "sql", "s", "d"),
        archive=Archive(paths[0]),
        image=ImageSource(paths[1], context=(("a", paths[2]),), layers=(paths[3],)),
        fields=SqlFields(Database("sqlite", "x", file=paths[4])),
        verification=Verification("true", archives=(Archive(paths[5]),)),
    )
    found: set[Path] = set()
    assert with_paths(task, None, found) is task
    assert found == set(paths)
    moved = with_paths(task, {path: Path("/new") / path.name for path in paths}, set())
    found.clear()
    with_paths(moved, None, found)
    assert found == {Path("/new") / path.name for path in paths}
    assert moved.query == task.query
