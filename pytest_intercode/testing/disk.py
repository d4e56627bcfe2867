"""Tests of the content of a sandbox's disk, of changes to it, and of a sandbox's end."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.protocol import Changes, Entry, Sandbox, SandboxSpec
from pytest_intercode.testing.fixtures import (
    SOON,
    BackendUnderTest,
    ContractFixtures,
    Launch,
    output_of,
    pack,
)

__all__ = ["DiskTests"]


def _file(text: str, mode: int = 0o644) -> Entry:
    return Entry("f", mode, 0, 0, hashlib.sha256(text.encode()).hexdigest())


_FOLDER = Entry("d", 0o755, 0, 0)
_CHANGES: dict[str, tuple[str, dict[str, Entry | None]]] = {
    "nothing": ("cat /t/one >/dev/null; ls -lR /etc >/dev/null", {}),
    "created": ("mkdir /t/x; echo new >/t/x/y", {"/t/x": _FOLDER, "/t/x/y": _file("new\n")}),
    "changed": ("printf more >>/t/one", {"/t/one": _file("onemore")}),
    "changed, with its old time": (
        "touch -r /t/one /tmp; printf two | dd of=/t/one conv=notrunc; touch -r /tmp /t/one",
        {"/t/one": _file("two")},
    ),
    "deleted": ("rm /t/one", {"/t/one": None}),
    "deleted from the image": ("rm -r /etc/skel", {"/etc/skel": None}),
    "renamed": ("mv /t/one /t/two", {"/t/one": None, "/t/two": _file("one")}),
    "mode": ("chmod 4711 /t/one", {"/t/one": _file("one", 0o4711)}),
    "a link": ("ln -s one /t/link", {"/t/link": Entry("l", 0o777, 0, 0, "one")}),
    "touched": ("touch -d 2001-01-01 /t/one", {}),
    "in memory": ("echo x >/dev/shm/x", {}),
}


class DiskTests(ContractFixtures):
    """Tests of the content of a sandbox's disk, of changes to it, and of a sandbox's end."""

    @pytest.mark.parametrize("change", list(_CHANGES))
    def test_changes_on_disk(self, sandbox: Sandbox, change: str) -> None:
        """The image's files and all written files are on its disk; files in memory are not."""
        action, expected = _CHANGES[change]
        sandbox.unpack(pack(("t/one", b"one")))
        sandbox.mark()
        assert sandbox.changes() == Changes({}, {})
        assert sandbox.run(action, SOON).ended == "itself"
        assert sandbox.changes().entries == expected
        assert sandbox.entries(expected) == expected

    def test_a_second_mark_forgets_the_first(self, sandbox: Sandbox) -> None:
        sandbox.mark()
        output_of(sandbox, "echo x >/tmp/x")
        sandbox.mark()
        assert sandbox.changes().entries == {}

    def test_what_stands_below_a_folder(self, sandbox: Sandbox) -> None:
        output_of(sandbox, "mkdir -p /t/a/b; echo 1 >/t/a/b/c; ln -s /etc /t/a/link")
        assert sorted(sandbox.below(["/t/a", "/nowhere"])) == [
            *("/t/a", "/t/a/b", "/t/a/b/c", "/t/a/link")
        ]

    def test_an_archive_is_unpacked_elsewhere_as_it_was(self, launch: Launch) -> None:
        source, target = launch(), launch()
        output_of(source, "mkdir /t; printf text >/t/a; chmod 4755 /t/a; ln -s a /t/b")
        paths = ["/t", "/t/a", "/t/b"]
        archive = source.archive(paths)
        with tarfile.open(fileobj=io.BytesIO(archive)) as reader:
            assert len(reader.getnames()) == len(paths)
        target.unpack(archive)
        assert target.entries(paths) == source.entries(paths)
        assert output_of(target, "cat /t/b") == "text"

    def test_what_acted_is_ended(self, sandbox: Sandbox) -> None:
        output_of(sandbox, "sleep 1000 & echo x >/tmp/x")
        sandbox.halt()
        assert sandbox.entries(["/tmp/x"]) == {"/tmp/x": _file("x\n")}
        sandbox.close()

    # -- the end

    def test_a_closed_sandbox_runs_nothing(self, sandbox: Sandbox) -> None:
        """It may be closed twice; using it later is an error that names it."""
        sandbox.run("sleep 1000 &", SOON)
        sandbox.close()
        sandbox.close()
        with pytest.raises(SandboxError, match=sandbox.name):
            sandbox.run("true", SOON)

    def test_sandboxes_share_nothing(self, launch: Launch) -> None:
        first, second = launch(), launch()
        assert first.name != second.name
        output_of(first, "echo x >/tmp/x; echo x >/dev/shm/x; sleep 1000 &")
        assert output_of(second, "ls /tmp/x /dev/shm/x 2>/dev/null; pgrep sleep") == ""

    def test_a_launch_that_fails_is_an_error(self, under_test: BackendUnderTest) -> None:
        """It is a ``SandboxError`` that names the image, or the folder that cannot be made."""
        launch = under_test.launcher.launch
        with pytest.raises(SandboxError, match="no-such-image"):
            launch(SandboxSpec("/no-such-image"))
        with pytest.raises(SandboxError, match="/dev/null/x"):
            launch(SandboxSpec(under_test.image, workdir="/dev/null/x"))
