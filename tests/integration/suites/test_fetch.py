"""Fetching as users do it: the command, killed and interrupted; file systems from their scripts."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_intercode import cli
from pytest_intercode.environments.bash import filesystems
from pytest_intercode.suites import download, upstream
from tests.support.mirror import CONTENT, Handler, Server, serving, table_of
from tests.support.thinning import ALL

SCRIPT = b"""\
#!/bin/bash
echo "from $PWD as $(id -u)" > /made.txt
mkdir -p /folder/'with space'
echo "it's" > /folder/'with space'/a.sh
chmod 750 /folder/'with space'/a.sh
ln -s a.sh /folder/'with space'/link
touch -m -t202305312359.59 /folder/old
touch -t impossible /folder/never
curl -s http://192.0.2.1/ > /folder/online
exit 3
"""

ROOTS = ("folder", "made.txt")
ROWS = b'[{"query": "q", "gold": "ls"}]'
NL2BASH = {
    **{f"data/nl2bash/nl2bash_fs_{n}.json": ROWS for n in range(1, 5)},
    **{f"docker/bash_scripts/setup_nl2b_fs_{n}.sh": SCRIPT for n in range(1, 4)},
}


@pytest.fixture(autouse=True)
def _base_image(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the scripts in a base image, where not all is played: these need no package."""
    if not ALL:
        folder = tmp_path_factory.mktemp("dockerfiles")
        (folder / "nl2bash.Dockerfile").write_text("FROM debian:bookworm-slim\n")
        monkeypatch.setattr(filesystems, "bundled_folder", lambda _: folder)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A repository of which the package's table knows."""
    monkeypatch.delenv("INTERCODE_URL", raising=False)
    monkeypatch.setattr(upstream, "_table", lambda: table_of(NL2BASH))
    monkeypatch.setattr(download, "_RETRY_DELAYS", ())
    nl2bash = upstream.DATASETS["nl2bash"]
    trees = tuple((path, ROOTS) for path, _ in nl2bash.filesystems)
    monkeypatch.setitem(upstream.DATASETS, "nl2bash", upstream.Dataset(nl2bash.paths, trees))
    with serving(NL2BASH) as made:
        yield made


def fetch(server: Server, folder: Path) -> int:
    return cli.main(["fetch", "nl2bash", "--to", str(folder), "--url", server.url])


@pytest.mark.usefixtures("needs_docker")
def test_file_systems_are_made_by_their_scripts(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch(server, tmp_path) == 0
    assert f"nl2bash: 7 files in {tmp_path} (7 new)" in capsys.readouterr().out
    archives = sorted(tmp_path.glob("nl2bash/filesystems/*"))
    assert [path.name for path in archives] == [f"nl2bash_fs_{n}.tar.gz" for n in (1, 2, 3)]
    now = time.time()
    with tarfile.open(fileobj=io.BytesIO(archives[0].read_bytes())) as tree:
        found = {member.name: member for member in tree}
        assert {(m.uid, m.gid) for m in found.values()} == {(0, 0)}
        made, script = (tree.extractfile(name) for name in ("made.txt", "folder/with space/a.sh"))
        assert made is not None
        assert script is not None
        assert made.read() == b"from / as 0\n"
        assert script.read() == b"it's\n"
    assert set(found) == {
        *("made.txt", "folder", "folder/old", "folder/online", "folder/with space"),
        *("folder/with space/a.sh", "folder/with space/link"),
    }
    assert found["folder/with space/a.sh"].mode == 0o750
    assert found["folder/with space/link"].linkname == "a.sh"
    assert found["folder/old"].mtime == 1685577599  # UTC
    assert found["folder/online"].size == 0  # no network
    assert abs(found["made.txt"].mtime - now) < 300
    server.asked.clear()
    assert fetch(server, tmp_path) == 0
    assert server.asked == []
    archives[1].unlink()
    assert fetch(server, tmp_path) == 0
    assert server.asked == ["/docker/bash_scripts/setup_nl2b_fs_2.sh"]
    assert archives[1].is_file()


@pytest.mark.usefixtures("needs_docker")
def test_a_script_that_makes_something_else(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = upstream.DATASETS["nl2bash"].paths
    script = "docker/bash_scripts/setup_nl2b_fs_1.sh"
    trees = upstream.Dataset(paths, ((script, ("folder", "nowhere")),))
    monkeypatch.setitem(upstream.DATASETS, "nl2bash", trees)
    assert fetch(server, tmp_path) == 1
    assert "nl2bash: the script made no folder and nowhere. 4 of 5 files" in capsys.readouterr().err
    assert not list(tmp_path.glob("nl2bash/filesystems/*"))


@pytest.mark.usefixtures("needs_docker")
def test_alfas_trees_have_their_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "src/icalfa/assets/docker/setup_nl2b_fs_5.sh"
    content = {"src/icalfa/assets/datasets/nl2bash_fs_5.json": ROWS, script: SCRIPT}
    monkeypatch.setattr(upstream, "_table", lambda: table_of(content))
    roots = (*ROOTS, "setup_nl2b_fs_5.sh")
    alfa = replace(upstream.DATASETS["alfa"], filesystems=((script, roots),))
    monkeypatch.setitem(upstream.DATASETS, "alfa", alfa)
    with serving(content) as server:
        assert cli.main(["fetch", "alfa", "--to", str(tmp_path), "--url", server.url]) == 0
    assert (tmp_path / "alfa/nl2bash_fs_5.json").read_bytes() == ROWS
    with tarfile.open(tmp_path / "alfa/filesystems/nl2bash_fs_5.tar.gz") as tree:
        kept = tree.extractfile("setup_nl2b_fs_5.sh")
        assert kept is not None
        assert kept.read() == SCRIPT
        assert tree.getmember("setup_nl2b_fs_5.sh").mode == 0o755
        assert tree.getmember("folder/with space/a.sh").mode == 0o750


def test_cybench_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        script = zipfile.ZipInfo("inspect_evals/cybench/challenges/own/images/run.sh")
        script.external_attr = 0o100755 << 16
        archive.writestr(script, b"#!/bin/sh\n")
        archive.writestr("inspect_evals/other/data.json", b"{}")
    content = {"packages/ab/inspect_evals.whl": packed.getvalue()}
    monkeypatch.setattr(upstream, "_table", lambda: table_of(content))
    script_path = tmp_path / "cybench/challenges/own/images/run.sh"
    with serving(content) as server:
        for _ in range(2):  # the second time, for what was removed
            assert cli.main(["fetch", "cybench", "--to", str(tmp_path), "--url", server.url]) == 0
            assert script_path.read_bytes() == b"#!/bin/sh\n"
            assert script_path.stat().st_mode & 0o777 == 0o755
            script_path.unlink()
    assert server.asked == ["/packages/ab/inspect_evals.whl"]
    assert not list(tmp_path.rglob("data.json"))


def test_without_an_engine(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert fetch(server, tmp_path) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "pytest-intercode: nl2bash: its files are downloaded, but the file systems of its tasks "
        "are made in a sandbox: no Docker engine answers at tcp://127.0.0.1:1: "
    )
    assert len(list(tmp_path.glob("nl2bash/*.json"))) == 4


@pytest.mark.usefixtures("needs_docker")
def test_pytest_finds_what_was_fetched(
    server: Server, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.mkdir("caches")))
    run = ("--intercode-dataset=nl2bash-fs4", "--co", "-q")
    missing = pytester.runpytest(*run)
    assert missing.ret == pytest.ExitCode.USAGE_ERROR
    missing.stderr.fnmatch_lines(["ERROR: --intercode-dataset=nl2bash-fs4: its data are missing.*"])
    [command] = [
        line.partition("Get them with: ")[2].partition(";")[0] for line in missing.errlines if line
    ]
    words = command.split()
    assert words == ["pytest-intercode", "fetch", "nl2bash"]
    assert cli.main([*words[1:], "--url", server.url]) == 0
    # The overrides of the real data set name tasks that our four rows do not have.
    found = pytester.runpytest(*run)
    found.stderr.fnmatch_lines(["*overrides: no task has the id *"])
    (pytester.path / "caches/pytest-intercode/data/nl2bash/nl2bash_fs_1.json").unlink()
    gone = pytester.runpytest(*run)
    gone.stderr.fnmatch_lines(
        ["*nl2bash_fs_1.json: there is no such file. Get them with: pytest-intercode fetch nl2b*"]
    )


# -- the command in a process of its own

COMMAND = """
import sys
from pytest_intercode import cli
from pytest_intercode.suites import upstream
from tests.support.mirror import CONTENT, table_of

upstream._table = lambda: table_of(CONTENT)
sys.exit(cli.main(sys.argv[1:]))
"""


def command(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stuck(handler: Handler, content: bytes) -> None:
    """Send half, then nothing more."""
    handler.answer(content[: len(content) // 2], len(content))
    time.sleep(20)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_break_in_the_middle(tmp_path: Path, how: signal.Signals) -> None:
    with serving(CONTENT) as server:
        words = ("fetch", "mbpp", "ic-ctf", "--to", str(tmp_path), "--url", server.url)
        server.faults = [stuck]
        process = command(*words)
        limit = time.monotonic() + 20
        while not (got := list(tmp_path.glob(".unfinished/*"))) or not got[0].stat().st_size:
            assert time.monotonic() < limit
            time.sleep(0.02)
        process.send_signal(how)
        output, errors = process.communicate(timeout=20)
        assert output == ""
        if how is signal.SIGINT:
            assert (process.returncode, errors) == (130, "pytest-intercode: interrupted\n")
            assert list(tmp_path.iterdir()) == []
        else:
            assert [path.name for path in tmp_path.iterdir()] == [".unfinished"]
        again = command(*words)
        output, errors = again.communicate(timeout=20)
        assert (again.returncode, errors) == (0, "")
        whole = {str(p.relative_to(tmp_path)): p for p in tmp_path.rglob("*") if p.is_file()}
        assert {f"data/{name}": p.read_bytes() for name, p in whole.items()} == CONTENT


def test_the_installed_command() -> None:
    script = Path(sys.executable).with_name("pytest-intercode")
    if not script.exists():
        pytest.skip("the project is not installed with its commands")
    for words in ([script], [sys.executable, "-m", "pytest_intercode"]):
        done = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("pytest-intercode ")
    assert os.access(script, os.X_OK)
