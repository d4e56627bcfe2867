"""The shell scripts that start an installed program in its sandbox, with a way to the gateway."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_intercode.agents.program_task import ANSWER_FOLDER
from pytest_intercode.core.platforms import Platform
from pytest_intercode.sandboxes.protocol import SHIMS_FOLDER

__all__ = ["CANNOT_RUN", "GATEWAY_FOLDER", "SCRIPT_FILE", "START", "START_CONNECTED", "Script"]

GATEWAY_FOLDER = "/opt/intercode/gateway"
"""The sandbox's folder with the sockets and the forwarder."""

SCRIPT_FILE = "run.sh"
"""The script's name in the program's home."""

START = f"sh {ANSWER_FOLDER}/{SCRIPT_FILE}"
"""Runs :meth:`Script.alone`."""

CANNOT_RUN = 125
"""Exit status of a sandbox that lacks what the program needs."""

OUTPUT_FILE = f"{ANSWER_FOLDER}/.output"
"""The program's output, except for messages of the protocol."""

STATUS_FILE, _READY_FILE = f"{ANSWER_FOLDER}/.status", f"{ANSWER_FOLDER}/.ready"
GROUP_FILE = f"{ANSWER_FOLDER}/.group"
"""Contains the process group of a connected program."""

START_CONNECTED = f"""\
cd {ANSWER_FOLDER} && rm -f {STATUS_FILE} {_READY_FILE} && cd "$OLDPWD" || exit 1
setsid bash {ANSWER_FOLDER}/{SCRIPT_FILE} </dev/null >{ANSWER_FOLDER}/.start 2>&1 &
until [ -e {_READY_FILE} ]; do sleep 0.05; done"""
"""Runs :meth:`Script.connected` in the background; waits until it is connected or has failed."""

_NOT_STARTED = (126, 127)  # exit statuses of a shell that cannot start a program
# The likely reason: a bundle is for one processor, and some programs need glibc.
_DESCRIBE = (
    "printf '\\n[it is installed for %s, glibc; this sandbox is %s%s]' {platform} \"$(uname -m)\" "
    "\"$(ls /lib/ld-musl-* >/dev/null 2>&1 && echo ', musl')\""
)
_MAX_OUTPUT_BYTES = 8000  # of the program's output are kept

# Run by a shell in the task's directory. Its own commands are not actions of the agent, so they
# must not run shims, which may be first on PATH.
_BEGINNING = """\
shims={shims}/bin:
case $PATH in "$shims"*) PATH=${{PATH#"$shims"}} ;; *) shims= ;; esac
mkdir -p {home}/tmp || exit {status}
{skills}"""
_COPY_SKILLS = "mkdir -p {target} && cp -R {source}/. {target} || exit {status}\n"
# The script's last output is the program's output.
_ALONE = """\
{forward}
PATH=$shims{node}$PATH {variables} {words} </dev/null >{output} 2>&1
status=$?
{end_forwarders}
case $status in {not_started}) {describe} >>{output} ;; esac
tail -c {max_bytes} {output}
exit $status
"""
# It runs in its own session, so that its processes are one group. Once we have closed the
# connection, the program has a moment to exit on its own.
_CONNECTED = """\
echo $$ >{group}
end() {{ echo "$1" >{status_file}; : >{ready}; kill -KILL -- -$$; }}
trap 'end $?' EXIT
exec 2>{output} >&2
{forward}
exec 3<>/dev/tcp/127.0.0.1/{port} || exit {status}
: >{ready}
PATH=$shims{node}$PATH {variables} {words} \\
    < <(cat <&3; exec >&-; sleep 0.3; kill -KILL -- -$$) 2>>{output} | cat >&3
status=${{PIPESTATUS[0]}}
case $status in {not_started}) {describe} ;; esac
exit $status
"""
_FIND_PERL = (
    "command -v perl >/dev/null || {{ echo 'the image has no perl for the forwarder'; exit "
    "{status}; }}\n"
)
_START_FORWARDER = (
    'forwarders="$forwarders $(perl {gateway}/forward.pl {port} {gateway}/{socket})" || exit '
    "{status}\n"
)


@dataclass(frozen=True)
class Script:
    """The parameters of a script that runs a program.

    Attributes:
        variables: its environment variables.
        words: its command line.
        forwards: the socket's name, by the port that a forwarder connects to it.
        node: the text to put in front of PATH.
        platform: the platform that it is installed for; None if that is not known.
        skills: a folder to copy, and the target folder in the program's home; None for none.
    """

    variables: Mapping[str, str]
    words: Sequence[str]
    forwards: Mapping[int, str]
    node: str
    platform: Platform | None
    skills: tuple[str, str] | None = None

    def alone(self) -> str:
        """Return the script of a program that reads no input and reports at the end what it did."""
        return self._fill(_ALONE)

    def connected(self, port: int) -> str:
        """Return the script of a program whose standard streams go to a port, for bash."""
        return self._fill(_CONNECTED, port=port)

    def _fill(self, template: str, port: int = 0) -> str:
        forward = _FIND_PERL.format(status=CANNOT_RUN) if self.forwards else ""
        for number, socket in self.forwards.items():
            forward += _START_FORWARDER.format(
                gateway=GATEWAY_FOLDER, socket=socket, port=number, status=CANNOT_RUN
            )
        platform = self.platform
        skills = ""
        if self.skills is not None:
            source, target = map(shlex.quote, self.skills)
            skills = _COPY_SKILLS.format(
                source=source, target=f"{ANSWER_FOLDER}/{target}", status=CANNOT_RUN
            )
        return f"{_BEGINNING}{template}".format(
            skills=skills,
            shims=SHIMS_FOLDER,
            home=ANSWER_FOLDER,
            forward=forward,
            end_forwarders="kill $forwarders 2>/dev/null" if self.forwards else "",
            output=OUTPUT_FILE,
            status_file=STATUS_FILE,
            ready=_READY_FILE,
            group=GROUP_FILE,
            port=port,
            status=CANNOT_RUN,
            not_started="|".join(map(str, _NOT_STARTED)),
            describe=":" if platform is None else _DESCRIBE.format(platform=platform),
            max_bytes=_MAX_OUTPUT_BYTES,
            node=self.node,
            variables=" ".join(
                f"{key}={shlex.quote(value)}" for key, value in self.variables.items()
            ),
            words=shlex.join(self.words),
        )


END_CONNECTED = f"""\
kill -KILL -- -$(cat {GROUP_FILE}) 2>/dev/null
cat {STATUS_FILE} 2>/dev/null || echo 0
tail -c {_MAX_OUTPUT_BYTES} {OUTPUT_FILE}"""
"""Kills a connected program; prints its exit status, or 0 if it still ran, and its output."""
