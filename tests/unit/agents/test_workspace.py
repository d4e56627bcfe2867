"""What a workspace makes of hostile archives, and of hostile files on this machine."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_intercode.agents import workspace as module
from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.workspace import Workspace
from pytest_intercode.errors import AgentError


class Sandbox:
    """The other side: it answers with what it is given, and keeps what it gets."""

    def __init__(self, said: bytes) -> None:
        self.said = said
        self.got: list[tuple[tarfile.TarFile, list[bytes]]] = []
        self.logged: list[str] = []

    def changed_files(self, since: str) -> bytes:
        return self.said

    def apply_changes(self, archive: bytes, removed: Sequence[bytes]) -> None:
        opened = tarfile.open(fileobj=io.BytesIO(archive))  # noqa: SIM115 - of bytes alone
        self.got.append((opened, [*removed]))


class Episode:
    """As much of an environment as a workspace asks for."""

    def __init__(self, said: bytes) -> None:
        self.sandbox = Sandbox(said)
        self.over = False
        self._episode = self

    def act(self, action: Callable[[], Any], kind: str) -> Any:
        assert kind == "copy"  # it takes no turn
        return action()

    def log(self, text: str) -> None:
        self.sandbox.logged.append(text)

    def _shell(self, caller: str) -> Sandbox:
        return self.sandbox


def member(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", **more: Any) -> Any:
    made = tarfile.TarInfo(name)
    made.type, made.size, made.mode = kind, len(content), 0o644
    for key, value in more.items():
        setattr(made, key, value)
    return made, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Any:
    return member(name, kind, linkname=target)


def packed(*members: Any, head: bytes = b"all\0\0") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for made, content in members:
            archive.addfile(made, io.BytesIO(content))
    return head + buffer.getvalue()


def opened(said: bytes, folder: Path) -> tuple[Workspace, Sandbox]:
    episode = Episode(said)
    folder.mkdir(exist_ok=True)
    return Workspace(cast(AgentEnvironment, episode), folder, keep=True), episode.sandbox


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (packed(member("../out")), "the name '../out' leads elsewhere"),
        (packed(member("/etc/x")), "the name '/etc/x' leads elsewhere"),
        (b"all\0\0" + member("./x", size=10**12)[0].tobuf(), "more than 256 MiB or 100,000 files"),
        (b"all\0\0" + member("./x", size=100)[0].tobuf(), "cannot be read"),
        (b"all\0\0garbage" * 100, "cannot be read"),
        (b"", None),
        (b"some\0", None),
        (b"some nonsense\0" + b"1 x\0no end", "cannot be read"),
    ],
)
def test_an_archive_is_not_trusted(said: bytes, wrong: str | None, tmp_path: Path) -> None:
    workspace, _ = opened(said, tmp_path / "here")
    if wrong is None:
        workspace.pull()
    else:
        with pytest.raises(AgentError, match=wrong):
            workspace.pull()
    assert names(tmp_path) == ["here"]


def test_nothing_lands_outside_and_no_link_leads_there(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    folder = member("in", tarfile.DIRTYPE, mode=0o755)
    workspace, sandbox = opened(
        packed(
            folder,
            member("in/file", content=b"f"),
            member("in/first", content=b"f"),
            link("in/again", "in/first", tarfile.LNKTYPE),
            link("loop", "loop", tarfile.LNKTYPE),
            link("stolen", "../secret", tarfile.LNKTYPE),
            link("good", "in/file"),
            link("out", str(tmp_path)),
            link("through", "dot/../../secret"),
            link("dot", "in/.."),
            link("ring", "ring"),
            member("out/file", content=b"evil"),
            member("good/file", content=b"evil"),
            member("pipe", tarfile.FIFOTYPE),
            member("disk", tarfile.BLKTYPE),
        ),
        tmp_path / "here",
    )
    workspace.pull()
    assert names(tmp_path / "here") == [
        *("dot", "good", "in", "in/again", "in/file", "in/first"),
    ]
    assert names(tmp_path) == [
        "here",
        *(f"here/{each}" for each in names(workspace.folder)),
        "secret",
    ]
    workspace.push()
    assert not sandbox.got  # nothing has changed here
    (workspace.folder / "out").write_text("mine")
    workspace.push()
    (archive, removed) = sandbox.got[0]
    assert removed == [b"out"]  # a link there is not written through
    assert archive.getnames() == ["./out"]
    assert sandbox.logged == ["[workspace: changed out]\n"]


def test_a_link_leads_nowhere_else_by_a_later_change(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    folders = [member(name, tarfile.DIRTYPE, mode=0o755) for name in ("p", "p/q")]
    first = packed(*folders, link("b", "p/q"), link("a", "b/../../secret"))
    workspace, sandbox = opened(first, tmp_path / "here")
    workspace.pull()
    assert (workspace.folder / "a").is_symlink()
    sandbox.said = packed(*folders, link("b", "p"), link("a", "b/../../secret"))
    workspace.pull()
    assert names(workspace.folder) == ["b", "p", "p/q"]


def test_no_file_of_this_machine_is_sent_through_a_link(tmp_path: Path) -> None:
    workspace, sandbox = opened(packed(member("given", content=b"g")), tmp_path / "here")
    workspace.pull()
    here = workspace.folder
    (tmp_path / "secret").write_text("s")
    (here / "given").unlink()
    (here / "given").symlink_to(tmp_path / "secret")
    (here / "folder").symlink_to(tmp_path)
    os.mkfifo(here / "pipe")  # whose reading would wait for ever
    workspace.push()
    (archive, removed) = sandbox.got[0]
    assert [(each.name, each.issym()) for each in archive] == [
        ("./folder", True),
        ("./given", True),
    ]
    assert removed == [b"given"]
    sandbox.said = packed(member("given", content=b"new"), member("folder/x", content=b"evil"))
    workspace.pull()
    assert (tmp_path / "secret").read_text() == "s"
    assert (here / "given").read_text() == "new"
    assert not (tmp_path / "x").exists()


def test_what_is_too_much_is_the_agents_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, _ = opened(packed(), tmp_path / "here")
    workspace.pull()
    with (workspace.folder / "huge").open("wb") as file:
        file.truncate(300 * 1024**2)
    with pytest.raises(AgentError, match="'huge' has more than 256 MiB"):
        workspace.push()
    (workspace.folder / "huge").unlink()
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    for name in ("a", "b"):
        (workspace.folder / name).write_bytes(b"x" * 600)
    with pytest.raises(AgentError, match="have changed at once"):
        workspace.push()
    monkeypatch.setattr(module, "MAX_ENTRIES", 1)
    with pytest.raises(AgentError, match="more than 1 files and folders"):
        workspace.push_last()
    workspace._env.over = True  # type: ignore[misc]
    workspace.push_last()  # what comes after the end is no error


def test_a_change_that_leaves_size_and_time_is_seen(tmp_path: Path) -> None:
    workspace, sandbox = opened(packed(member("given", content=b"one")), tmp_path / "here")
    workspace.pull()
    place = workspace.folder / "given"
    workspace.push()
    for text in ("two", "six"):
        time = place.stat().st_mtime_ns
        place.write_text(text)
        os.utime(place, ns=(time, time))
        workspace.push()
    assert [got[0].extractfile("./given").read() for got in sandbox.got] == [  # type: ignore[union-attr]
        *(b"two", b"six")
    ]
    place.touch()
    workspace.push()
    assert len(sandbox.got) == 2
    place.chmod(0o600)
    workspace.push()
    assert [each.mode for each in sandbox.got[2][0]] == [0o600]
