"""Treatments: folders of files that are laid over a project, compared with a control without."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pytest_intercode.errors import ConfigurationError, suggestion

__all__ = ["CONTROL", "Treatment", "find_treatments"]

CONTROL = "control"
"""The name for the project without a treatment."""

_SEPARATOR = "__"  # between a treatment's name and the agent that a folder is for


@dataclass(frozen=True)
class Treatment:
    """The folders that are laid over a project for one agent.

    Attributes:
        name: its name; :data:`CONTROL` if there are no folders.
        overlays: the folders, in the order in which they are laid over it.
    """

    name: str
    overlays: tuple[Path, ...] = ()


def find_treatments(
    folder: Path, agent_names: Collection[str], selected: Collection[str] = ()
) -> list[Treatment]:
    """Return the treatments that an agent gets, the control first.

    ``NAME`` is a treatment for all agents. ``NAME__AGENT`` is only for that agent: it is laid over
    the files of ``NAME``, if there is such a folder.

    Args:
        folder: the folder that contains a folder for each treatment.
        agent_names: the names of the agent.
        selected: the names of the selected treatments; empty for all.

    Raises:
        ConfigurationError: the folder does not exist or contains no treatment, a treatment has the
            control's name, or none has a selected name.
    """
    try:
        folders = sorted(path for path in folder.iterdir() if _is_treatment(path))
    except OSError as error:
        raise ConfigurationError(f"treatments={str(folder)!r}: {error.strerror}") from None
    if not folders:
        raise ConfigurationError(
            f"treatments={str(folder)!r}: contains no folders; each folder is a treatment, whose "
            "files are laid over the project"
        )
    names = sorted({path.name.partition(_SEPARATOR)[0] for path in folders})
    if CONTROL in names:
        raise ConfigurationError(
            f"treatments={str(folder)!r}: {CONTROL!r} is the project without a treatment, which "
            "has no folder; remove it, or give it another name"
        )
    for name in selected:
        if name not in (CONTROL, *names):
            raise ConfigurationError(
                f"--intercode-treatment={name}: {folder} has {', '.join(names)}, and there is "
                f"always {CONTROL}.{suggestion(name, (CONTROL, *names))}"
            )
    treatments = [Treatment(CONTROL)]
    for name in names:
        own_names = {f"{name}{_SEPARATOR}{agent}" for agent in agent_names}
        overlays = tuple(path for path in folders if path.name == name)
        overlays += tuple(path for path in folders if path.name in own_names)
        if overlays:
            treatments.append(Treatment(name, overlays))
    return [treatment for treatment in treatments if not selected or treatment.name in selected]


def _is_treatment(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith((".", "__"))
