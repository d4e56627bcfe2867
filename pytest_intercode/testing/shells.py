"""Tests that a dead shell is replaced, and that options and traps spare our own lines."""

from __future__ import annotations

import pytest

from pytest_intercode.sandboxes.protocol import Sandbox
from pytest_intercode.testing.fixtures import (
    PROMPTLY,
    SOON,
    ContractFixtures,
    await_only_shell,
    output_of,
)

__all__ = ["ShellTests"]


class ShellTests(ContractFixtures):
    """Tests that a dead shell is replaced, and that options and traps spare our own lines."""

    # -- the shell's death

    @pytest.mark.parametrize(
        ("action", "status"),
        [
            ("exit 3", 3),
            ("exit", 0),
            ("exec false", 1),
            ("kill -9 $$", 137),
            ("kill -TERM $$", 143),
            ("set -u; echo $missing", 1),
            ("set -e; false; echo not reached", 1),
            ("trap 'echo bye' EXIT; exit 4", 4),
        ],
    )
    def test_lost_shell_is_replaced(self, shared: Sandbox, action: str, status: int) -> None:
        _check_replaced(shared, action, status)

    @pytest.mark.usefixtures("separate")
    def test_shell_lost_with_all_is_replaced(self, shared: Sandbox) -> None:
        _check_replaced(shared, "bash -c 'kill -9 -1'", 137)

    def test_state_is_kept_when_it_is_older_than_noclobber(self, sandbox: Sandbox) -> None:
        output_of(sandbox, "set -o noclobber")
        output_of(sandbox, "x=newer; cd /tmp")
        sandbox.run("exit", SOON)
        assert output_of(sandbox, "echo $x; pwd") == "newer\n/tmp\n"

    def test_a_new_shell_has_the_options(self, sandbox: Sandbox) -> None:
        options = (
            "set -uo pipefail +o hashall -o noglob; shopt -s extglob dotglob; shopt -u sourcepath"
        )
        output_of(sandbox, options)
        output_of(sandbox, "f() { case $1 in +([0-9])) echo number;; esac; }; IFS=o")
        listing = "set +o; shopt -p; f 12"
        expected = output_of(sandbox, listing)
        assert sandbox.run("exit", SOON).restarted
        assert output_of(sandbox, listing) == expected
        assert "set +o hashall\n" in expected
        assert expected.endswith("number\n")

    @pytest.mark.usefixtures("separate")
    def test_kill_everything(self, sandbox: Sandbox) -> None:
        # The kernel spares the caller and the first process.
        output_of(sandbox, "sleep 1000 & disown; kill -9 -1")
        await_only_shell(sandbox)
        assert output_of(sandbox, "echo alive") == "alive\n"

    # -- options, traps and redirections that would disturb the shell's own lines

    def test_tracing_shows_the_action_alone(self, shared: Sandbox) -> None:
        assert output_of(shared, "set -x") == ""
        # The second plus is unavoidable if the shell is to survive unbalanced quotes.
        assert output_of(shared, "echo hi") == "++ echo hi\nhi\n"
        assert output_of(shared, "set +x") == "++ set +x\n"
        assert output_of(shared, "echo hi") == "hi\n"

    def test_verbose_shows_the_action_alone(self, shared: Sandbox) -> None:
        assert output_of(shared, "set -v") == ""
        assert output_of(shared, "echo hi") == "hi\n"
        assert output_of(shared, "echo one\necho two") == "one\necho two\ntwo\n"
        assert output_of(shared, "set +v") == ""

    def test_redirected_for_good(self, sandbox: Sandbox) -> None:
        assert output_of(sandbox, "exec 9>&1 >/dev/null") == ""
        assert output_of(sandbox, "echo silent; (exit 5)") == ""
        assert output_of(sandbox, "echo $? >&9; exec >&9 9>&-") == "5\n"
        assert output_of(sandbox, "exec 2>&-; echo on") == "on\n"
        assert sandbox.run("exec >&-; (exit 6)", SOON).status == 6

    def test_errexit_lasts_and_spares_our_lines(self, sandbox: Sandbox) -> None:
        output_of(sandbox, "x=kept; set -e")
        assert output_of(sandbox, "false || echo handled") == "handled\n"
        assert output_of(sandbox, "case $- in *e*) echo on;; esac") == "on\n"
        execution = sandbox.run("false\necho not reached", SOON)
        assert (execution.output, execution.status, execution.restarted) == (b"", 1, True)

    def test_error_trap_fires_for_the_action_alone(self, sandbox: Sandbox) -> None:
        output_of(sandbox, "trap 'echo failed' ERR")
        assert sandbox.run("false", SOON).output.count(b"failed") >= 1
        assert output_of(sandbox, "echo $?") == "1\n"
        assert output_of(sandbox, "true") == ""

    def test_functions_named_like_builtins(self, sandbox: Sandbox) -> None:
        overridden = ("cd", "printf", "declare", "set", "trap", "alias", "shopt", "umask", "return")
        output_of(
            sandbox, "x=kept; " + " ".join(f"{name}() {{ echo {name}; }};" for name in overridden)
        )
        assert output_of(sandbox, "echo $x") == "kept\n"
        assert output_of(sandbox, "cd") == "cd\n"
        execution = sandbox.run("exit 5", SOON)
        assert (execution.status, execution.output) == (5, b"")
        assert output_of(sandbox, "echo $x; cd; builtin cd /tmp; pwd") == "kept\ncd\n/tmp\n"


def _check_replaced(shared: Sandbox, action: str, status: int) -> None:
    output_of(
        shared,
        "cd /tmp; x=kept; list=(a 'b c'); f() { echo \"f $x\"; }; umask 077; set -o noclobber",
    )
    execution = shared.run(f"x=lost; echo before\n{action}", SOON)
    assert (execution.ended, execution.status, execution.restarted) == ("itself", status, True)
    assert execution.output.startswith(b"before\n")
    assert b"not reached" not in execution.output
    assert execution.output.endswith(b"bye\n") == ("bye" in action)
    assert execution.seconds < PROMPTLY
    assert execution.cwd == "/tmp"
    state = 'pwd; f; echo "${list[1]}"; umask; [ -o noclobber ] && echo noclobber; echo $-'
    directory, function, item, mask, option, flags = output_of(shared, state).splitlines()
    assert (directory, function, item, mask) == ("/tmp", "f kept", "b c", "0077")
    assert option == "noclobber"
    assert not {"e", "u"} & set(flags)
