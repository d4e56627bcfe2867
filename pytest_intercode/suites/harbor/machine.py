"""The machine of a task folder, read from its Dockerfile and compose file; nothing is built.

Harbor runs commands in the image's directory and as its user, and keeps its entry point. A sandbox
here has its own first process, so these settings are read from the files and applied to it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

from pytest_intercode.core.machine import ImageSource
from pytest_intercode.suites.harbor.compose import AgentMachine
from pytest_intercode.suites.harbor.config import HealthcheckConfig
from pytest_intercode.suites.harbor.dockerfiles import Machine, read_image
from pytest_intercode.suites.harbor.parts import healthcheck_setup
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["machine_setup", "read_machine_of"]

# A command that only keeps a container alive, which the sandbox's first process already does.
_WAITING = re.compile(
    r"(?:(?:/bin/)?(?:ba)?sh(?: -l?c)? ?)?(?:exec )?"
    r"(?:sleep (?:inf|infinity|\d+)|tail -f /dev/null)?"
)


def read_machine_of(
    service: AgentMachine, dockerfile: SuitePath | None, image: str
) -> tuple[ImageSource, Machine]:
    """Return a task's image, and its machine.

    Args:
        service: the settings of a compose file, which take precedence over the image's.
        dockerfile: the Dockerfile to build; None if there is only an image.
        image: the image that was already built from it, empty for none; or the only image.

    Raises:
        SuiteError: the Dockerfile cannot be read, or is a link to another folder, whose context
            would be used.
    """
    source, machine = ImageSource(image=image), Machine()
    if dockerfile is not None:
        source, machine = read_image(dockerfile, image)
    return source, replace(
        machine,
        workdir=service.workdir or machine.workdir,
        user=service.user or machine.user,
        entrypoint=machine.entrypoint if service.entrypoint is None else service.entrypoint,
    )


def machine_setup(machine: Machine, service: AgentMachine) -> tuple[str, ...]:
    """Return the commands that set up a machine: its folders, entry point and health check."""
    lines = [f"mkdir -p -m {mode} -- {shlex.quote(folder)}" for folder, mode in service.folders]
    lines += _start_command(machine, service.command or ())
    if (check := service.health) is not None and check.command:
        config = HealthcheckConfig(
            command=shlex.join(check.command),
            interval_sec=check.interval,
            timeout_sec=check.timeout,
            start_period_sec=check.start_period,
            start_interval_sec=min(check.interval, 1.0),
            retries=check.retries,
        )
        lines.append(healthcheck_setup(config))
    return tuple(lines)


def _start_command(machine: Machine, own_command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that starts an image's entry point, which a container would start itself.

    Its arguments are the command of the compose file, or else the waiting command that both
    harnesses use.
    """
    if not machine.entrypoint and _WAITING.fullmatch(" ".join(own_command)):
        return ()
    words = own_command or ("sh", "-c", "sleep infinity")
    command = shlex.join([*machine.entrypoint, *words])
    if machine.user:
        name = shlex.quote(machine.user)
        command = f'setpriv --reuid {name} --regid "$(id -g {name})" --init-groups {command}'
    return (f"cd {shlex.quote(machine.workdir)} && setsid -f {command} </dev/null >/dev/null 2>&1",)
