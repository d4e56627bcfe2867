"""The style sheets: whether texts can be read, in the light, in the dark and on paper.

The contrast is that of WCAG 2.2, 1.4.3: 4.5 to 1 for texts of this size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from pytest_intercode.core.record import OUTCOMES
from pytest_intercode.page.sources import read_source

TEXTS = ("ink", "soft", "link", *OUTCOMES)
GROUNDS = ("paper", "sheet", "hover", "code")


def palette(sheet: str, selector: str) -> dict[str, str]:
    """Return the colours that a rule sets, by their names."""
    rule = read_source(sheet).partition(f"{selector} {{")[2].partition("}")[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})\b", rule))


LIGHT = palette("base.css", ":root")
DARK = palette("base.css", ':root[data-theme="dark"]')
AUTOMATIC = palette("base.css", ':root:not([data-theme="light"])')
PRINTED = palette("page.css", ':root[data-theme="dark"], :root:not([data-theme="light"])')


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    channels = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    linear = [
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_the_formula() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.478, abs=0.001)


@pytest.mark.parametrize(
    "colours",
    [LIGHT, DARK, {**LIGHT, **PRINTED, "hover": "#fff", "code": "#fff"}],
    ids=["light", "dark", "printed"],
)
def test_texts_can_be_read(colours: Mapping[str, str]) -> None:
    weak = {
        f"{text} on {ground}": round(ratio, 2)
        for text in TEXTS
        for ground in GROUNDS
        if (ratio := contrast(colours[text], colours[ground])) < 4.5
    }
    assert not weak


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_charts_can_be_seen(colours: Mapping[str, str]) -> None:
    """Lines and bars: 3 to 1, by 1.4.11."""
    for run in range(6):
        assert contrast(colours[f"run-{run}"], colours["paper"]) >= 3
    for name in ("ink", "soft"):  # of lines that an agent left otherwise
        assert contrast(colours[name], colours["gone"]) >= 4.5
        assert contrast(colours[name], colours["came"]) >= 4.5
    assert contrast(colours["focus"], colours["paper"]) >= 3


def test_the_systems_dark_theme_is_that_of_the_button() -> None:
    assert AUTOMATIC == DARK
    assert DARK.keys() == LIGHT.keys()
