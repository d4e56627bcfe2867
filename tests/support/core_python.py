"""A Python that has this package and what it needs, and none of its extras."""

from __future__ import annotations

import re
import venv
from importlib.metadata import Distribution, distributions
from pathlib import Path

__all__ = ["make_python"]

_LOCK = Path(__file__).parents[2] / "requirements" / "run.txt"


def make_python(folder: Path, **versions: str) -> Path:
    """Make a virtual environment; its packages are links to ours.

    Args:
        folder: where to; it must not exist.
        versions: what packages are to say of their version, by their names.

    Returns:
        Its interpreter.
    """
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    locked = re.findall(r"^([\w.-]+)==", _LOCK.read_text("utf-8"), re.MULTILINE)
    for package in distributions():
        name = _canonical(package.metadata["Name"])
        if name not in {"pytest-intercode", *map(_canonical, locked)}:
            continue
        for path in _tops(package):
            if path.name.endswith(".dist-info") and name in versions:
                (site / path.name).mkdir()
                text = (path / "METADATA").read_text("utf-8")
                text = re.sub(r"(?m)^Version: .*", f"Version: {versions[name]}", text, count=1)
                (site / path.name / "METADATA").write_text(text, "utf-8")
                (site / path.name / "entry_points.txt").touch()
            else:
                (site / path.name).symlink_to(path)
    # An editable package is found by what its .pth file names.
    import pytest_intercode

    root = Path(pytest_intercode.__file__).parent
    if not (site / root.name).exists():
        (site / root.name).symlink_to(root)
    return folder / "bin" / "python"


def _tops(package: Distribution) -> set[Path]:
    """Return the folders and modules of a package that lie in the folder of packages."""
    return {
        Path(str(package.locate_file(file.parts[0])))
        for file in package.files or ()
        if file.parts[0] not in ("..", "__pycache__")
    }


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
