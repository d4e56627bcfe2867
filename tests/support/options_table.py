"""Writes README.md's table of options from the code: ``python -m tests.support.options_table``."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_intercode.options.table import OPTIONS

__all__ = ["with_table"]

_README = Path(__file__).parents[2] / "README.md"
_HEAD = "| option | meaning |\n| --- | --- |\n"


def with_table(text: str) -> str:
    """Return a text with the current table of options in place of its own."""
    table = _HEAD + "".join(f"{_row(option.form, option.description)}\n" for option in OPTIONS)
    assert text.count(_HEAD) == 1
    return re.sub(re.escape(_HEAD) + r"(\|.*\n)*", lambda _: table, text)


def _row(form: str, description: str) -> str:
    form, description = (cell.replace("|", "\\|") for cell in (form, description))
    return f"| `--intercode-{form}` | {description} |"


if __name__ == "__main__":
    _README.write_text(with_table(_README.read_text("utf-8")), "utf-8")
