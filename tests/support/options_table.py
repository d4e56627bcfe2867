"""Writes the options' reference from the code: ``python -m tests.support.options_table``."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_intercode.options.option import Option
from pytest_intercode.options.table import GROUPS, OPTIONS

__all__ = ["PAGE", "with_tables"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "options.md"
_BEGIN = "<!-- options: python -m tests.support.options_table writes from here -->"
_END = "<!-- options: to here -->"
_HEAD = "| option | meaning |\n| --- | --- |\n"


def with_tables(text: str) -> str:
    """Return a page with the current tables of options, one of each group, between its markers."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert begin
    assert end
    names = ", ".join(f"`--intercode-{option.name}`" for option in OPTIONS if option.everyday)
    parts = [f"`pytest --help` shows the everyday options: {names}.\n"]
    for title, options in GROUPS:
        rows = "".join(f"{_row(option)}\n" for option in options)
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n{_HEAD}{rows}")
    return "\n".join([f"{before}{begin}\n", *parts, f"{end}{after}"])


def _row(option: Option[object]) -> str:
    form, description = (cell.replace("|", "\\|") for cell in (option.form, option.description))
    linked = re.sub(r"docs/([\w-]+\.md)", r"[\1](../\1)", description)
    return f"| `--intercode-{form}` | {linked} |"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
