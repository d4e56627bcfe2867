"""A format of tasks: a folder with the file KATAS, and a folder for each task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_intercode import Permissions, Task


class KataFormat:
    """Katas: ``QUERY`` is what to do, ``gold.pl`` a solution that prints the answer."""

    name = "katas"

    def recognises(self, path: Path) -> bool:
        """Whether there is a list of katas."""
        return path.joinpath("KATAS").is_file()

    def load(self, path: Path, env: str | None, permissions: Permissions) -> Sequence[Task]:
        """Return the katas in the order of the list."""
        return [
            Task(
                id=name,
                query=path.joinpath(name, "QUERY").read_text(),
                gold=(path.joinpath(name, "gold.pl").read_text(),),
                env=env or "perl",
                suite=path.name,
                dataset=path.name,
                workdir="/work",
                source=f"{path}/{name}",
            )
            for name in path.joinpath("KATAS").read_text().split()
        ]
