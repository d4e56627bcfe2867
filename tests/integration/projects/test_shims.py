"""Programs of a sandbox that a test answers for, or watches; and agents that work against it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.call import ShimCall
from pytest_intercode.core.task import Limits
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.projects import shims as shims_module
from pytest_intercode.projects.fakes import Fake, FakeAnswer
from pytest_intercode.projects.shims import Shims
from pytest_intercode.sandboxes.attached import AttachedSandbox
from tests.integration.conftest import Launch

Start = Callable[..., AttachedSandbox]
_USERS = pytest.mark.parametrize("user", ["", "nobody"])
# What does not depend on how a sandbox is started is tried in one way.
_ONE_BACKEND = pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
_TIMEOUT = 60.0  # seconds
# Waits until a shim has started a program, which has `sleep 60` as its words.
_AWAIT_SLEEP = "until grep -Eqas '^/[a-z/]*sleep.60' /proc/[0-9]*/cmdline; do :; done"


@pytest.fixture
def start(launch: Launch) -> Iterator[Start]:
    """Return a function that starts a sandbox with shims, which answer."""
    with contextlib.ExitStack() as stack:

        def start_one(shims: Shims, **spec: Any) -> AttachedSandbox:
            stack.callback(shims.close)
            variables = (("LC_ALL", "C.UTF-8"), *shims.variables)
            sandbox = launch(readonly=shims.readonly, variables=variables, **spec)
            shims.open(sandbox)
            return sandbox

        yield start_one


def run(sandbox: AttachedSandbox, command: str) -> tuple[int | None, str]:
    execution = sandbox.run(command, _TIMEOUT)
    return execution.status, execution.output.decode()


@_USERS
def test_a_fake(start: Start, user: str) -> None:
    fake = Fake(
        {
            "repo view *": '{"visibility": "PUBLIC"}',
            "fail": FakeAnswer("out", "err", 7),
            "where": lambda call: call.directory,
        }
    )
    shims = Shims({"gh": fake})
    sandbox = start(shims, user=user)
    assert run(sandbox, "cd /tmp; gh repo view a/b --json") == (0, '{"visibility": "PUBLIC"}\n')
    assert run(sandbox, "gh fail 2>/dev/null; exec 2>&1; (exit 7)") == (7, "out")
    # What sets PATH again, as the login shells of some agents do, and what starts other shells.
    assert run(sandbox, "bash -lc 'cd /; gh where'; sh -c 'gh where'") == (0, "/\n/tmp\n")
    assert run(sandbox, "gh repo delete a/b") == (
        1,
        "gh: this test has no answer for: repo delete a/b\n",
    )
    assert run(sandbox, r"gh where $'two\nlines' $'\xff' ''")[0] == 1
    assert [(call.arguments, call.directory, call.status) for call in shims.calls] == [
        (("repo", "view", "a/b", "--json"), "/tmp", 0),
        (("fail",), "/tmp", 7),
        (("where",), "/", 0),
        (("where",), "/tmp", 0),
        (("repo", "delete", "a/b"), "/tmp", 1),
        (("where", "two\nlines", "\udcff", ""), "/tmp", 1),
    ]
    assert [call.refused for call in shims.calls] == [False] * 4 + [True] * 2
    assert all(call.seconds > 0 and call.start_time > 1e9 for call in shims.calls)
    shims.check()


@_ONE_BACKEND
def test_the_input_of_a_fake_is_read_where_the_program_would(start: Start) -> None:
    shims = Shims({"gh": Fake({"*": "ok"}), "psql": Fake({"*": "ok"}, reads_input=True)})
    sandbox = start(shims)
    loop = "printf 'a\\nb\\n' | while read -r name; do gh view $name; done"
    assert run(sandbox, loop) == (0, "ok\nok\n")
    run(sandbox, "echo body | gh issue create --body-file -; printf '\\377' | gh api --input=-")
    run(sandbox, "psql <<<'select 1'; head -c 1000000 /dev/zero | psql; echo ${PIPESTATUS[*]}")
    assert [call.input for call in shims.calls[:5]] == ["", "", "body\n", "\udcff", "select 1\n"]
    assert not any(call.truncated for call in shims.calls[:5])
    last = shims.calls[5]
    assert (len(last.input), last.truncated, last.status) == (262_144, True, 0)


@_ONE_BACKEND
def test_a_script_stands_for_a_program(start: Start, tmp_path: Path) -> None:
    (tmp_path / "fake_gh").write_text('#!/bin/bash\necho "$0 got $*, and $(cat)"\nexit 3\n')
    shims = Shims({"gh": "fake_gh"}, folder=tmp_path)
    sandbox = start(shims)
    script = "/opt/intercode/shims/scripts/gh"
    assert run(sandbox, "echo text | gh a b") == (3, f"{script} got a b, and text\n")
    assert [(str(call), call.status) for call in shims.calls] == [("gh a b", 3)]


@_USERS
def test_a_watched_program_is_as_it_was(start: Start, user: str) -> None:
    shims = Shims(watch=["cat", "sleep", "seq", "nothing", "own"])
    sandbox = start(shims, user=user)
    assert run(sandbox, "cd /tmp; seq 100000 | cat | tail -n 1; (exit 5)") == (5, "100000\n")
    assert run(sandbox, "cat /missing 2>/dev/null; echo $?") == (0, "1\n")
    assert run(sandbox, "nothing") == (127, "nothing: command not found\n")
    assert run(sandbox, f"sleep 60 & {_AWAIT_SLEEP}; kill $!; wait $!; echo $?") == (0, "143\n")
    # Nothing of it goes on where its shim is killed.
    kill = f"sleep 600 & {_AWAIT_SLEEP}; kill -9 $!; wait $!; echo $?"
    assert run(sandbox, kill)[1].endswith("137\n")
    assert run(sandbox, _AWAIT_SLEEP.replace("until", "while")) == (0, "")
    own = (
        "mkdir -p /tmp/a /tmp/b; printf '#!/bin/sh\\necho mine\\n' >/tmp/b/own; chmod +x /tmp/b/own"
    )
    assert run(sandbox, f"{own}; PATH=$PATH:/tmp/a:/tmp/b own") == (0, "mine\n")
    statuses = {str(call): call.status for call in shims.calls}
    assert statuses == {
        "seq 100000": 0,
        "cat": 0,
        "cat /missing": 1,
        "nothing": 127,
        "sleep 60": 143,
        "sleep 600": None,  # nobody was left to report it
        "own": 0,
    }


def test_none_of_our_own_commands_is_a_call(start: Start) -> None:
    shims = Shims({"rm": Fake(default="removed")}, ["tar", "cat", "mkdir"])
    sandbox = start(shims)
    assert sandbox.admin(
        "cat </dev/null; mkdir -p /new; tar --version >/dev/null; rm -r /new", 9
    ) == (
        0,
        b"",
    )
    assert shims.calls == []
    assert run(sandbox, "rm -r /new; printenv INTERCODE_PATH") == (1, "removed\n")
    assert [str(call) for call in shims.calls] == ["rm -r /new"]


@_ONE_BACKEND
def test_a_function_that_raises_fails_the_test_and_not_the_run(start: Start) -> None:
    def answer(call: ShimCall) -> str:
        return call.arguments[5]

    shims = Shims({"gh": Fake({"*": answer})})
    sandbox = start(shims)
    assert run(sandbox, "gh a") == (1, "gh: the test that answers in its place failed\n")
    with pytest.raises(IndexError):
        shims.check()


@_ONE_BACKEND
def test_functions_are_called_one_at_a_time(start: Start) -> None:
    running = threading.Semaphore(1)

    def answer(call: ShimCall) -> str:
        assert running.acquire(blocking=False)
        time.sleep(0.02)
        running.release()
        return "ok"

    shims = Shims({"gh": Fake({"*": answer})})
    sandbox = start(shims)
    assert run(sandbox, "for i in 1 2 3 4 5; do gh $i & done; wait") == (0, "ok\n" * 5)
    shims.check()


@_ONE_BACKEND
def test_an_episode_that_begins_again(start: Start, launch: Launch) -> None:
    """The calls of the sandbox that broke are not those of the run."""
    shims = Shims({"gh": Fake({"*": lambda call: call.arguments[0]})})
    first = start(shims)
    assert run(first, "gh a & gh b & wait")[0] == 0
    second = launch(readonly=shims.readonly, variables=shims.variables)
    shims.open(second)
    assert run(first, "gh c")[0] == 1
    assert sorted(run(second, "gh d & gh e & wait")[1].split()) == ["d", "e"]
    assert sorted(call.arguments[0] for call in shims.calls) == ["d", "e"]


@_ONE_BACKEND
def test_an_image_without_perl(start: Start, launch: Launch) -> None:
    shims = Shims(watch=["git"])
    sandbox = launch(readonly=shims.readonly, variables=shims.variables)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shims_module, "_PERL", "/usr/bin/no-perl")
        with pytest.raises(ConfigurationError, match=r"fake= and watch= need /usr/bin/no-perl in"):
            shims.open(sandbox)


# -- agents that work against it


def test_an_agent_cannot_change_its_shims(start: Start) -> None:
    shims = Shims({"gh": Fake({"*": "ok"})})
    sandbox = start(shims)
    bin_folder = "/opt/intercode/shims/bin"
    for command in (
        f"echo x >{bin_folder}/gh",
        f"rm -f {bin_folder}/gh",
        f"mv {bin_folder} /tmp/x",
        "rm -rf /opt/intercode/shims.sockets/*",
        f"mount -o remount,rw {bin_folder}",
        "umount /opt/intercode/shims",
        f"mount -t tmpfs none {bin_folder}",
    ):
        assert run(sandbox, f"{command} 2>/dev/null")[0] != 0, command
    assert run(sandbox, "gh x") == (0, "ok\n")


def test_a_call_cannot_be_taken_back(start: Start) -> None:
    """Whoever removes the address, or kills its shims, only loses the answers."""
    shims = Shims({"gh": Fake({"*": "ok"})}, ["sleep"])
    sandbox = start(shims)
    assert run(sandbox, f"gh merge; sleep 60 & {_AWAIT_SLEEP}; kill -9 $!; wait")[0] == 0
    assert run(sandbox, "rm /opt/intercode/shims.address; gh x; sleep 0 && echo ran")[1] == (
        "gh: the test that answers in its place cannot be reached\nran\n"
    )
    assert [str(call) for call in shims.calls] == ["gh merge", "sleep 60"]


@_ONE_BACKEND
def test_an_episode_that_is_over_has_no_more_calls(start: Start) -> None:
    shims = Shims({"gh": Fake({"*": "ok"})}, ["true"])
    sandbox = start(shims)
    shims.close()
    assert run(sandbox, "gh x") == (
        1,
        "gh: the test that answers in its place cannot be reached\n",
    )
    assert run(sandbox, "command -p env true; /usr/bin/env true; echo $?") == (0, "0\n")
    assert shims.calls == []


def test_an_agent_that_finds_the_socket_of_another(start: Start) -> None:
    """Root may list the folder of the sockets. It has no secret but its own."""
    first, second = (Shims({"gh": Fake({"*": text})}) for text in ("first", "second"))
    sandbox, other = start(first), start(second)
    copy = "/opt/intercode/shims.address"
    assert first._endpoint is not None
    assert second._endpoint is not None
    forged = (
        f"unix /opt/intercode/shims.sockets/{second._endpoint.path.name} {first._endpoint.secret}"
    )
    status, output = run(sandbox, f"echo {forged} >{copy}; gh merge; gh merge")
    assert (status, output.count("cannot be reached")) == (1, 2)
    assert run(other, "gh view") == (0, "second\n")
    assert first.calls == []
    assert [str(call) for call in second.calls] == ["gh view"]


def test_a_flood_of_calls(start: Start) -> None:
    shims = Shims({"gh": Fake({"*": "ok"})}, ["true"])
    # Fifty watched programs, each with its shim, fit into the limit: one without room for a second
    # process runs without a report of its end.
    sandbox = start(shims, limits=Limits(pids=160))
    assert run(sandbox, "seq 100 | xargs -P 50 -n 1 gh | grep -c ok") == (0, "100\n")
    assert run(sandbox, "seq 50 | xargs -P 50 -n 1 /opt/intercode/shims/bin/true")[0] == 0
    assert len(shims.calls) == 150
    assert {call.status for call in shims.calls} == {0}
    bomb = sandbox.run("bomb() { gh x | gh y & gh z; bomb & bomb; }; bomb", 1.0)
    assert bomb.ended in ("timeout", "flood")
    assert run(sandbox, "gh again")[1].endswith("ok\n")


@_ONE_BACKEND
def test_calls_that_are_too_large_or_too_many(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shims_module, "_MAX_CALLS", 4)
    shims = Shims({"gh": Fake({"*": "ok"})}, ["true"])
    sandbox = start(shims)
    megabyte = "$(printf '%0100000d ' {1..10})"
    assert run(sandbox, f"gh start {megabyte} 2>&1") == (1, "gh: refused: too many arguments\n")
    assert run(sandbox, f"/opt/intercode/shims/bin/true start {megabyte}") == (0, "")
    assert [(call.words[1], len(call.words), call.truncated) for call in shims.calls] == [
        ("start", 4, True),
        ("start", 4, True),
    ]
    assert run(sandbox, "gh a; gh b; gh c 2>&1; /opt/intercode/shims/bin/true; echo $?") == (
        0,
        "ok\nok\ngh: refused: too many calls\n0\n",
    )
    assert len(shims.calls) == 4
    assert shims.unrecorded == 2


def test_rubbish_from_a_sandbox(start: Start) -> None:
    shims = Shims({"gh": Fake({"*": "ok"})}, ["true"])
    sandbox = start(shims)
    script = r"""
        $SIG{PIPE} = "IGNORE"; open F, "<", "/opt/intercode/shims.address";
        ($way, $place, $secret) = split " ", <F>;
        sub try { socket S, 1, 1, 0; connect S, pack "S a108", 1, $place;
            syswrite S, $_[0]; shutdown S, 1; sysread S, my $data, 99; close S }
        sub message { pack "(N/a*)*", $secret, @_ }
        try($_) for "", "\xff" x 9, "x" x 9e6, message(), message("call"), message("x" x 70000),
            message("call", "x", "/", "", ""), message("check", "x"), message("end", "0", "0"),
            message("end", "999999999999", "x"), message("end", "-1", "1"),
            message("end", "\xd9\xa3", "1");
        try(message("call", "true", "/", "", "", "forged"));
        try(message("end", "0", "300")); try(message("end", "0", "0"));
    """
    if shims._end_forwarding is None:
        assert run(sandbox, f"perl -e '{script}'") == (0, "")
        assert [(str(call), call.status) for call in shims.calls] == [("true forged", 255)]
    assert run(sandbox, "gh x") == (0, "ok\n")
