"""Draws docs/pictures: a terminal, and the page of a run. ``scripts/pictures`` runs it.

The terminal plays the first tutorial; the page is of the examples, by two agents.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.browser import Browser
from tests.support.pages import DOCS, ROOT
from tests.support.terminal_picture import Line, draw, record

__all__ = ["COLUMNS", "COMMAND", "PICTURES", "SHOTS", "record_run"]

PICTURES = DOCS / "pictures"
COMMAND = (
    "pytest tests --tb=short --intercode-agent=agents.py:Hasty --intercode-agent=agents.py:Careful"
)
COLUMNS = 96
SHOTS = [(scheme, width) for scheme in ("light", "dark") for width in (1400, 420)]
"""The pictures of the page: a scheme of colours, and the width of a window."""

_TUTORIAL = DOCS / "tutorial-first-test.md"
_FILES = re.compile(r"^```\w* (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

_HEIGHT = 900
_PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")


def record_run() -> list[Line]:
    """Play the first tutorial up to its two agents, and return what the terminal showed."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "shop")
        for name, text in _FILES.findall(_TUTORIAL.read_text("utf-8")):
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text(text)
        subprocess.run(["git", "init", "--quiet", str(project)], check=True)
        words = COMMAND.split()[1:]
        quiet = ("--color=yes", "--no-header", "--intercode-sandbox=bubblewrap")
        return record([*_PYTEST, *quiet, *words], project, COLUMNS)


def _write_page(folder: Path) -> Path:
    for path in (ROOT / "examples").iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    agents = ("--intercode-agent=my_agent.py:Agent", "--intercode-agent=oracle")
    page = folder / "page.html"
    options = (f"--intercode-html={page}", "--intercode-run-name=A first look")
    subprocess.run(
        [*_PYTEST, "--intercode-sandbox=bubblewrap", *agents, *options, "notes.yaml"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        check=False,  # one task fails
    )
    return page


def _photograph(page: Path) -> None:
    with Browser() as browser:
        for scheme, width in SHOTS:
            browser.send(
                "Emulation.setEmulatedMedia",
                features=[{"name": "prefers-color-scheme", "value": scheme}],
            )
            browser.send(
                "Emulation.setDeviceMetricsOverride",
                **{"width": width, "height": _HEIGHT, "deviceScaleFactor": 1},
                mobile=width < 600,
            )
            browser.open(page)
            browser.screenshot(PICTURES / f"page-{scheme}-{width}.png")


def main() -> None:
    """Draw all pictures."""
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "run.svg").write_text(draw(COMMAND, record_run(), COLUMNS), "utf-8")
    with tempfile.TemporaryDirectory() as folder:
        _photograph(_write_page(Path(folder)))


if __name__ == "__main__":
    main()
