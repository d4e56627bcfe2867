"""The programs of a sandbox that are shims: which are allowed, and their files."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TypeAlias

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.projects.fakes import Fake

__all__ = ["FakeLike", "ShimPrograms"]

__tracebackhide__ = True  # a report shows the line of the test that asked

FakeLike: TypeAlias = "Fake | str | os.PathLike[str]"
"""What replaces a program: answers, or the path of a script."""

_NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+@-]*")
_MAX_SCRIPT_BYTES = 16 * 1024**2
# Programs that run agents, their shells and the shims themselves.
_RESERVED = frozenset(("bash", "env", "node", "perl", "sh"))
_READS_INPUT = {None: "words", True: "always", False: "never"}


@cache
def _client() -> str:
    return resources.files("pytest_intercode.projects").joinpath("shim.pl").read_text("utf-8")


@dataclass(frozen=True)
class ShimPrograms:
    """The programs that are faked and watched in a sandbox.

    Attributes:
        fakes: the answers that replace programs.
        scripts: the scripts that replace programs.
        watched: the programs that are watched.
    """

    fakes: Mapping[str, Fake]
    scripts: Mapping[str, bytes]
    watched: frozenset[str]

    @classmethod
    def read(
        cls,
        fakes: Mapping[str, FakeLike],
        watch: Sequence[str],
        folder: Path,
        agent_programs: Collection[str],
    ) -> ShimPrograms:
        """Check a user's arguments; see :class:`~pytest_intercode.projects.shims.Shims`.

        Raises:
            ConfigurationError: a program is not a name, is reserved, or is there twice; a script
                cannot be read.
        """
        if not isinstance(fakes, Mapping):
            raise ConfigurationError(
                f"fake={fakes!r:.80}: give a mapping, such as {{'gh': Fake({{...}})}}"
            )
        if not isinstance(watch, (list, tuple)):
            raise ConfigurationError(f"watch={watch!r:.80}: give a list of programs")
        for argument, names in (("fake=", fakes), ("watch=", watch)):
            for name in names:
                _check_name(name, argument, _RESERVED | {*agent_programs})
        for index, name in enumerate(watch):
            if name in fakes or name in watch[:index]:
                place = "also in fake=" if name in fakes else "given twice"
                raise ConfigurationError(f"watch=: {name} is {place}; leave one out")
        return cls(
            {name: fake for name, fake in fakes.items() if isinstance(fake, Fake)},
            {
                name: _read_script(name, fake, folder)
                for name, fake in fakes.items()
                if not isinstance(fake, Fake)
            },
            frozenset(watch),
        )

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the files of the folder that the sandbox sees; none if there is no shim."""
        for name, fake in self.fakes.items():
            yield f"bin/{name}", _make_shim("fake", name, _READS_INPUT[fake.reads_input])
        for name, script in self.scripts.items():
            yield f"bin/{name}", _make_shim("script", name)
            yield f"scripts/{name}", script
        for name in self.watched:
            yield f"bin/{name}", _make_shim("watch", name)
        if self.fakes or self.scripts or self.watched:
            yield "check", _make_shim("check", "check")


def _check_name(name: object, argument: str, reserved: Collection[str]) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{argument}: {name!r:.80} is not the name of a program; give one as it is typed, "
            "without its folder, of letters, digits and . _ + @ -"
        )
    if name in reserved:
        raise ConfigurationError(
            f"{argument}: {name} is a program that the agent itself needs, so it cannot be replaced"
        )


def _read_script(name: str, script: object, folder: Path) -> bytes:
    if not isinstance(script, (str, os.PathLike)):
        raise ConfigurationError(
            f"fake=: {name} is {script!r:.80}; give a Fake({{...}}) or the path of a script"
        )
    path = folder / script
    try:
        if not path.is_file():
            raise FileNotFoundError
        with path.open("rb") as file:
            content = file.read(_MAX_SCRIPT_BYTES + 1)
    except (OSError, ValueError):
        raise ConfigurationError(
            f"fake=: there is no script {str(path)!r:.200} for {name}; "
            "for answers, give Fake({...})"
        ) from None
    if len(content) > _MAX_SCRIPT_BYTES:
        raise ConfigurationError(f"fake=: the script {path} has more than 16 MiB")
    if not content.startswith(b"#!"):
        raise ConfigurationError(
            f"fake=: the first line of the script {path} has to name its interpreter, as in "
            "#!/usr/bin/env python3"
        )
    return content


def _make_shim(kind: str, program: str, reads_input: str = "never") -> bytes:
    text = _client().replace("'KIND'", f"'{kind}'", 1).replace("'PROGRAM'", f"'{program}'", 1)
    return text.replace("'READS_INPUT'", f"'{reads_input}'", 1).encode()
