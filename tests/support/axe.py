"""axe-core in a page: the rules by which everybody can use it, asked of a real browser.

``scripts/_setup`` puts it into build/; another copy may be named by the variable INTERCODE_AXE.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tests.support.browser import Browser

__all__ = ["DAILY_LOOKS", "LOOKS", "Axe", "Theme", "axe_path", "looking"]

Theme = Literal["light", "dark"]
LOOKS: Sequence[tuple[Theme, int]] = (
    *(("light", 1400), ("light", 420)),
    *(("dark", 1400), ("dark", 420)),
)
"""Themes, and widths in pixels: those of a desk and of a telephone."""

DAILY_LOOKS = (LOOKS[0], LOOKS[3])
"""Each theme and each width once: what is looked at every day."""


def axe_path() -> Path:
    """Return where axe-core's script is, if it is there."""
    root = Path(__file__).parents[2]
    return Path(os.environ.get("INTERCODE_AXE") or root / "build" / "axe-core" / "axe.min.js")


@contextmanager
def looking(browser: Browser, theme: Theme, width: int) -> Iterator[None]:
    """Have the browser's window so wide, and its system in a theme."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    feature = {"name": "prefers-color-scheme", "value": theme}
    browser.send("Emulation.setDeviceMetricsOverride", **size)
    browser.send("Emulation.setEmulatedMedia", features=[feature])
    try:
        yield
    finally:
        browser.send("Emulation.clearDeviceMetricsOverride")
        browser.send("Emulation.setEmulatedMedia", features=[])


class Axe:
    """Axe-core's script."""

    def __init__(self, path: Path) -> None:
        self._script = path.read_text(encoding="utf-8")

    def violations(self, browser: Browser) -> Sequence[str]:
        """Return what is wrong with the page that is open, a line for each element."""
        # As a developer's console does it: no policy of the page is in its way, or changed for it.
        browser.evaluate(f"{self._script}; undefined")
        found = browser.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then(({violations, passes}) =>"
            "JSON.stringify([passes.length, violations.flatMap(({id, impact, nodes}) => nodes.map("
            "({target, any, all, none}) => `${id} (${impact}): ${target.join(' ')}: ` +"
            "[...any, ...all, ...none].map(({message}) => message).join('; ')))]))"
        )
        passes, lines = json.loads(found)
        assert passes > 10, "axe-core has looked at nothing"
        assert isinstance(lines, list)
        return lines
