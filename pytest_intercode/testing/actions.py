"""Tests of the state that an action sees, its output, its input, and mistakes in it."""

from __future__ import annotations

import hashlib
import random
import shlex

import pytest

from pytest_intercode.core.task import Limits
from pytest_intercode.sandboxes.channel import FLOOD
from pytest_intercode.sandboxes.protocol import Sandbox
from pytest_intercode.testing.fixtures import (
    GO,
    SOON,
    ContractFixtures,
    Launch,
    await_only_shell,
    output_of,
    pack,
)

__all__ = ["ActionTests"]


class ActionTests(ContractFixtures):
    """Tests of the state that an action sees, its output, its input, and mistakes in it."""

    # -- state that lasts from action to action

    def test_state_lasts(self, sandbox: Sandbox) -> None:
        output_of(sandbox, "mkdir -p '/tmp/a b' && cd '/tmp/a b'")
        output_of(
            sandbox,
            "x=$'two\\nlines'; export E=exported; list=(one 'two three'); declare -A m=([k]=v)",
        )
        output_of(
            sandbox,
            "greet() {\n  echo \"hello $1\"\n}\nshopt -s expand_aliases; alias hi='greet you'",
        )
        output_of(sandbox, "umask 027; set -o pipefail")
        assert sandbox.run(":", SOON).cwd == "/tmp/a b"
        assert output_of(sandbox, "pwd") == "/tmp/a b\n"
        assert output_of(sandbox, 'echo "$x"; bash -c \'echo "$E"\'') == "two\nlines\nexported\n"
        assert output_of(sandbox, 'printf "<%s>" "${list[@]}" "${m[k]}"') == "<one><two three><v>"
        assert output_of(sandbox, "hi; greet me") == "hello you\nhello me\n"
        assert output_of(sandbox, "umask; false | true; echo $?") == "0027\n1\n"

    def test_status(self, shared: Sandbox) -> None:
        for status in (0, 1, 37, 255):
            execution = shared.run(f"(exit {status})", SOON)
            assert (execution.status, execution.restarted) == (status, False)
            assert output_of(shared, "echo $?") == f"{status}\n"
        assert shared.run("no-such-command", SOON).status == 127
        assert shared.run("bash -c 'kill -9 $$'", SOON).status == 137

    @pytest.mark.parametrize("separators", ["0", "12", "sB", ""])
    def test_status_does_not_depend_on_ifs(self, sandbox: Sandbox, separators: str) -> None:
        assert sandbox.run(f"IFS={separators}", SOON).status == 0
        assert sandbox.run("(exit 12)", SOON).status == 12
        assert output_of(sandbox, 'echo "$?"') == "12\n"

    def test_background_job_survives(self, sandbox: Sandbox) -> None:
        assert output_of(sandbox, f"({GO}; echo late) & echo started") == "started\n"
        assert output_of(sandbox, "touch /tmp/go; wait; echo waited") == "late\nwaited\n"

    def test_late_output_comes_with_the_next_action(self, sandbox: Sandbox) -> None:
        output_of(sandbox, f"({GO}; echo late) &")
        assert output_of(sandbox, "echo mine") == "mine\n"
        sandbox.admin("touch /tmp/go", SOON)
        while "late" not in (output := output_of(sandbox, "sleep 0.05; echo mine")):
            assert output == "mine\n"
        assert output in ("late\nmine\n", "mine\nlate\n")

    def test_programs_have_no_descriptor_of_ours(self, shared: Sandbox) -> None:
        """The keeper inherits no other open descriptor; the fourth one is opened by `ls`."""
        assert output_of(shared, "ls /proc/self/fd") == "0\n1\n2\n3\n"
        assert output_of(shared, "(exec ls /proc/self/fd) & wait") == "0\n1\n2\n3\n"

    def test_a_new_shell_has_what_was_before_actions_that_change_nothing(
        self,
        sandbox: Sandbox,
    ) -> None:
        output_of(sandbox, "x=kept; cd /tmp")
        assert sandbox.run("ls /nowhere", SOON).status == 2
        assert output_of(sandbox, "echo $?") == "2\n"
        assert output_of(sandbox, "ls / | head -1; echo 'two words' >there") == "bin\n"
        assert sandbox.run("exit", SOON).cwd == "/tmp"
        assert output_of(sandbox, "echo $x; cat there") == "kept\ntwo words\n"

    def test_a_program_of_the_same_name_as_a_function(self, sandbox: Sandbox) -> None:
        output_of(sandbox, "ls() { x=changed; }")
        output_of(sandbox, "ls")
        sandbox.run("exit", SOON)
        assert output_of(sandbox, "echo $x") == "changed\n"

    def test_a_function_of_a_file_that_every_shell_reads(self, launch: Launch) -> None:
        sandbox = launch(variables=(("BASH_ENV", "/defined"),))
        output_of(sandbox, "echo 'ls() { x=changed; }' >/defined")
        sandbox.run("exit", SOON)
        output_of(sandbox, "ls")
        sandbox.run("exit", SOON)
        assert output_of(sandbox, "echo $x") == "changed\n"

    def test_a_shell_without_its_descriptor_is_replaced(self, sandbox: Sandbox) -> None:
        output_of(sandbox, "x=kept")
        assert sandbox.run("exec 201>&-", SOON).restarted
        assert output_of(sandbox, "echo $x") == "kept\n"

    # -- output

    def test_stdout_and_stderr_keep_their_order(self, shared: Sandbox) -> None:
        """Both use the keeper's standard output; its standard error has the keeper's answers."""
        count = 400
        expected = "".join(f"out {n}\nerr {n}\n" for n in range(count))
        builtin = f'for ((n = 0; n < {count}; n++)); do echo "out $n"; echo "err $n" >&2; done'
        assert output_of(shared, builtin) == expected
        program = f"import os\nfor n in range({count}):\n for fd, name in (1, 'out'), (2, 'err'):\n"
        program += "  os.write(fd, f'{name} {n}\\n'.encode())"
        assert output_of(shared, f"python3 -c {shlex.quote(program)}") == expected

    def test_bytes_are_exact(self, shared: Sandbox) -> None:
        """There is no terminal in between, and nothing decodes the bytes."""
        data = random.Random(1).randbytes(50_000) + bytes(range(256))
        shared.unpack(pack(("data", data)))
        execution = shared.run("cat /data", SOON)
        assert execution.output == data
        assert execution.digest == hashlib.sha256(data).hexdigest()
        assert shared.run(r"printf '\0a\0\377no line end'", SOON).output == b"\0a\0\xffno line end"

    def test_frames_and_markers_cannot_be_forged(self, shared: Sandbox) -> None:
        forged = "D 0 0 - /\nP 0 dead 1\nX 0\n"
        assert output_of(
            shared, f"printf %s {shlex.quote(forged)}; printf %s {shlex.quote(forged)} >&2"
        ) == (forged + forged)
        assert output_of(shared, "echo next") == "next\n"

    def test_long_output_keeps_both_ends(self, launch: Launch) -> None:
        sandbox = launch(limits=Limits(output=1000))
        whole = "".join(f"{n}\n" for n in range(1, 100_001)).encode()
        execution = sandbox.run("seq 100000", SOON)
        assert (execution.ended, execution.status) == ("itself", 0)
        assert execution.output == whole[:750] + whole[-250:]
        assert execution.size == len(whole)
        assert execution.digest == hashlib.sha256(whole).hexdigest()
        assert execution.truncated
        exact = sandbox.run("head -c 1000 /dev/zero", SOON)
        assert (exact.output, exact.truncated) == (bytes(1000), False)
        longer = sandbox.run("head -c 1001 /dev/zero", SOON)
        assert (len(longer.output), longer.size, longer.truncated) == (1000, 1001, True)

    def test_flood_is_stopped(self, sandbox: Sandbox) -> None:
        """The transport of output does not store more of it than it can pass on."""
        execution = sandbox.run("yes", 60)
        assert (execution.ended, execution.status, execution.restarted) == ("flood", None, True)
        assert execution.size > FLOOD
        assert execution.truncated
        assert execution.seconds < 20
        assert output_of(sandbox, "echo next") == "next\n"
        await_only_shell(sandbox)

    # -- input

    def test_input_is_empty(self, shared: Sandbox) -> None:
        assert output_of(shared, "cat; wc -c; read -r line; echo $?") == "0\n1\n"
        assert output_of(shared, "exec </etc/passwd") == ""
        assert output_of(shared, "cat; echo still here") == "still here\n"

    def test_large_action(self, shared: Sandbox) -> None:
        """Bytes that the keeper's input cannot take immediately wait, and are not lost."""
        word = "0123456789abcdef" * 65536  # 1 MiB
        assert output_of(shared, f"x='{word}'; echo ${{#x}}; printf %s \"$x\" | sha256sum", 30) == (
            f"{len(word)}\n{hashlib.sha256(word.encode()).hexdigest()}  -\n"
        )
        assert output_of(shared, "echo ${#x}") == f"{len(word)}\n"

    def test_any_text_arrives_as_it_is(self, shared: Sandbox) -> None:
        # Surrogates stand for bytes that are not UTF-8, as in os.fsdecode.
        text = '\udcff\udc80 é 😀 \t \\ " ` $x !! % \x01\x7f \r'
        action = f"printf %s {shlex.quote(text)}\n"
        assert shared.run(action, SOON).output == text.encode("utf-8", "surrogateescape")
        assert output_of(shared, "") == ""
        assert output_of(shared, "# a comment\n\n   \n") == ""
        assert output_of(shared, "cat <<'E'\n$x 'quoted'\nE\n") == "$x 'quoted'\n"

    # -- bash's messages about mistakes

    @pytest.mark.parametrize(
        "mistake",
        [
            "echo 'unbalanced",
            'echo "unbalanced\nmore',
            "if true",
            "f() {",
            "cat <<END\nno end",
            "echo )",
            "for x in; do",
            "no-such-command",
            "echo one\n\nno-such-command\nno-such-command-either",
            "cd /nowhere",
            "echo ${bad substitution}",
            "break",
            "source /no/such/file",
            "((1/0))",
            "true\nf() {\n  no-such-command\n}\nf",
        ],
    )
    def test_mistakes_read_as_in_bash_c(self, shared: Sandbox, mistake: str) -> None:
        output_of(shared, "x=kept")
        _, expected = shared.admin(f"bash -c {shlex.quote(mistake)}", SOON)
        for _ in range(2):
            assert output_of(shared, mistake) == expected.decode()
            assert output_of(shared, "echo $x") == "kept\n"

    def test_line_numbers_count_from_each_action(self, shared: Sandbox) -> None:
        action = "true\nno-such-command\n\nno-such-command"
        expected = "".join(f"bash: line {n}: no-such-command: command not found\n" for n in (2, 4))
        for turn in range(5):
            assert output_of(shared, action) == expected, f"action {turn + 1}"
            assert output_of(shared, "no-such-command") == expected.splitlines()[0].replace(
                "line 2", "line 1"
            ) + ("\n")
        shared.run("exit", SOON)
        assert output_of(shared, action) == expected, "in a new shell"

    def test_complaints_of_earlier_actions(self, sandbox: Sandbox) -> None:
        output_of(sandbox, f"true\nf() {{ no-such-command; }}\n({GO}; cd /nowhere) &")
        assert output_of(sandbox, "true") == ""
        assert (
            output_of(sandbox, "f") == "environment: line 2: no-such-command: command not found\n"
        )
        sandbox.admin("touch /tmp/go", SOON)
        late = b"bash: line 3: cd: /nowhere: No such file or directory\n"
        assert sandbox.settle(SOON) == late
        assert output_of(sandbox, "no-such-command").encode() == (
            late + b"bash: line 1: no-such-command: command not found\n"
        )
