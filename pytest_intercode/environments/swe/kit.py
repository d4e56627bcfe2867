"""The verifier kit: what test scripts would fetch from the network, in a folder of the host.

It holds a Python that runs in every image with bash, pip, sets of packages, wheels, and stand-ins
for curl, apt-get, uv and pip (``standins.sh``). Verifiers have it read-only. Only a command
(``pytest-intercode kit``) makes it, because that needs downloads.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from inspect import getsource
from pathlib import Path
from platform import machine

from pytest_intercode.core.platforms import Platform, platform_of_machine
from pytest_intercode.core.task import Task, Verification
from pytest_intercode.environments.swe import requirements
from pytest_intercode.errors import MissingProgram
from pytest_intercode.sandboxes.portable import (
    LinuxPython,
    copy_python,
    download_wheels,
    install_wheels,
    own_platform,
    run_installer,
    write_program,
)
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.sandboxes.workshop import Workshop
from pytest_intercode.system.files import cache_folder

__all__ = [
    "AT",
    "DEFAULT",
    "add_command",
    "add_set",
    "holds",
    "kit_folder",
    "kit_with",
    "make_kit",
    "mounts",
    "sets_of",
    "settings",
]

AT = "/opt/verifier-kit"
"""The path of the kit in verifiers."""

DEFAULT = (("pytest==8.4.1", "pytest-json-ctrf==0.3.5"), ("pytest==8.4.1",))
"""The sets of packages of most published tasks."""

_PURPOSE = "the verifier kit"
_FACTS = "python.json"  # the versions of Python and glibc, if the Python is not this machine's
_RECIPE = "2"  # has to change when the content of the kit does
_NAMES = ("curl", "wget", "apt", "apt-get", "uv", "uvx", "pip", "pip3")
_FALLBACK = ("python", "python3", "pytest")
_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
# The kit's Python loads the packages that its stand-ins name, like a virtual environment. A Python
# of the image, which tests may start, must not have them.
_PACKAGES = """\
import os
import site

if os.environ.get("VERIFIER_KIT_PACKAGES"):
    site.addsitedir(os.environ["VERIFIER_KIT_PACKAGES"])
"""


def kit_folder() -> Path:
    """Return the folder of this version's kit, which may not exist, for this machine's processor.

    If this machine's own Python is not for Linux, the kit has Debian's, of another version.
    """
    name = _VERSION if own_platform() is not None else f"linux-{_platform().architecture}"
    return cache_folder() / f"verifier-kit-{_RECIPE}-{name}"


def _platform() -> Platform:
    """Return the platform of the kit: Linux on this machine's processor."""
    return platform_of_machine(machine())


def settings() -> str:
    """Return the lines that a script begins with, so that it finds the kit."""
    return (
        f'export PATH="{AT}/bin:$PATH:{AT}/fallback" PIP_NO_INDEX=1 '
        f"PIP_FIND_LINKS={AT}/wheels PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore "
        'VERIFIER_KIT_STATE="$(mktemp -d)"\n'
    )


def holds(requirements: Sequence[str]) -> bool:
    """Whether there is a kit with a set of these requirements."""
    folder = kit_folder()
    if not requirements:
        return (folder / "bin").is_dir()
    return (folder / "sets" / _key(requirements) / "requirements.txt").is_file()


def sets_of(task: Task) -> list[tuple[str, ...]]:
    """Return the sets of packages that the tests of a task need from the kit."""
    sets = [verification.kit for verification in task.verifications if not verification.fetches]
    return [packages for packages in dict.fromkeys(sets) if packages is not None]


def kit_with(requirements: Sequence[str], prefix: str) -> Path:
    """Return the folder of the kit, which has a set of these requirements.

    Args:
        requirements: the requirements that a script installs.
        prefix: the task, for messages.

    Raises:
        MissingProgram: there is no kit, or it lacks the set; the message names the command.
    """
    if holds(requirements):
        return kit_folder()
    packages = ", ".join(requirements) or "curl and the like"
    raise MissingProgram(
        f"{prefix}: its tests install {packages} from the network, but the verifier kit does not "
        f"have them; add them with: {add_command((), requirements)}"
    )


def mounts(task: Task, verification: Verification) -> tuple[tuple[str, str], ...]:
    """Return the mounts for tests that need the kit: paths on the host and in the sandbox.

    Raises:
        MissingProgram: there is no kit, or it lacks what the tests need.
    """
    if verification.kit is None or verification.fetches:
        return ()
    return ((str(kit_with(verification.kit, f"{task.source}: task {task.id!r}")), AT),)


def add_command(datasets: Sequence[str], requirements: Sequence[str]) -> str:
    """Return the command that adds the packages of datasets' tests, or these requirements."""
    words = [word for name in datasets for word in ("--dataset", name)] or requirements
    return shlex.join(["pytest-intercode", "kit", *words])


def _key(requirements: Iterable[str]) -> str:
    text = "\n".join(sorted(set(requirements)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# -- making it


def make_kit(progress: Callable[[str], None]) -> Path:
    """Make the kit if it does not exist, and update its stand-ins.

    Args:
        progress: called with one line for each step.

    Raises:
        FetchError: a program of this machine is missing, or a download failed.
    """
    folder = kit_folder()
    if not (folder / "python" / "bin" / "python").is_file():
        _copy_python(folder, progress)
    if not (folder / "pip").is_dir():
        progress("getting pip")
        run_installer(_PURPOSE, "pip", "install", "--target", str(folder / "pip"), "pip")
    for name in ("sets", "wheels"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    script = resources.files("pytest_intercode.environments.swe").joinpath("standins.sh")
    for subfolder, names in (("bin", _NAMES), ("fallback", _FALLBACK)):
        (folder / subfolder).mkdir(exist_ok=True)
        for name in names:
            write_program(folder / subfolder / name, script.read_text("utf-8"))
    (folder / "requirements.py").write_text(getsource(requirements), "utf-8")
    # In the standard library itself, because Debian's Python searches packages in its own folders.
    for library in (folder / "python" / "lib").glob("python3.*"):
        (library / "sitecustomize.py").write_text(_PACKAGES, "utf-8")
    return folder


def _copy_python(folder: Path, progress: Callable[[str], None]) -> None:
    """Put Python and curl into the kit: this machine's, or Debian's if it does not run Linux."""
    target, place = folder / "python", f"{AT}/python"
    if own_platform() is not None:
        progress("copying this machine's Python")
        curl = shutil.which("curl")
        copy_python(target, place, [Path(curl)] if curl else [])
        return
    progress(f"copying the Python of a sandbox for {_platform()}")
    folder.mkdir(parents=True, exist_ok=True)
    with Workshop(SandboxSettings(), _platform(), _PURPOSE) as workshop:
        python = workshop.copy_python(target, place, ["curl"])
    (folder / _FACTS).write_text(json.dumps([python.version, python.glibc]))


def _python_of(folder: Path) -> LinuxPython | None:
    """Return the kit's Python, for which packages are downloaded; None for this machine's."""
    if own_platform() is not None:
        return None
    version, glibc = json.loads((folder / _FACTS).read_text())
    return LinuxPython(_platform(), version, glibc)


def add_set(requirements: Sequence[str], progress: Callable[[str], None]) -> bool:
    """Add a set of packages and its wheels to the kit; return whether it was new.

    Raises:
        FetchError: they cannot be downloaded.
    """
    folder = kit_folder()
    target = folder / "sets" / _key(requirements)
    if not requirements or (target / "requirements.txt").is_file():
        return False
    progress(f"getting {', '.join(requirements)}")
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    python = _python_of(folder)
    install_wheels(_PURPOSE, requirements, part, python)
    download_wheels(_PURPOSE, requirements, folder / "wheels", python)
    listing = "".join(f"{name}\n" for name in sorted(set(requirements)))
    (part / "requirements.txt").write_text(listing)
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)
    return True
