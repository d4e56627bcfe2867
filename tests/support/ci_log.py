"""A log as CI servers read it: which of its lines are commands to them."""

from __future__ import annotations

import re

__all__ = ["HOSTILE", "NAMES", "commands"]

NAMES = ("error", "warning", "add-mask", "stop-commands", "set-output", "group", "debug")
HOSTILE = "\n".join(
    [
        "::error::at the beginning",
        "  \t::add-mask::e",
        "x\r::stop-commands::after a carriage return",
        "x\v::error::after a vertical tab",
        "x\x85::error::after NEL",
        "\u2028::error::after a line separator",
        "\xa0::error::after a blank that is none",
        "xx\b\b::error::after backspaces",
        "in the middle ##[error]of a line",
        "###[group]nested",
        "##vso[task.setvariable variable=PATH]/tmp",
        "an elf says ##teamcity[buildStatus status='SUCCESS']",
        "\x1b[0Ksection_start:1:name\r\x1b[0Ktitle",
        "\x1b]52;c;cGF5bG9hZA==\x07 \x1b]0;title\x07 \x9b2J",
        "turned \u202e\u2066 \ufeff ]]> \x00 \udc80 </script><b>& \x1f\x7f",
        "::error::at the end",
    ]
)

# As they are read by the runners of GitHub (the first two), Azure Pipelines and TeamCity.
_COMMANDS = re.compile(r"^\s*::|##\[|##vso|##[a-z]+\[", re.IGNORECASE)
_LINE_ENDS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_STYLES = re.compile(r"\x1b\[[0-9;]*m")  # pytest's own colours


def commands(log: str) -> list[str]:
    """Return the lines that command something, to a CI server or to a terminal."""
    lines = []
    for line in _LINE_ENDS.split(log):
        plain = _STYLES.sub("", line)
        is_printable = all(character.isprintable() or character == "\t" for character in plain)
        if _COMMANDS.search(plain) or not is_printable:
            lines.append(line)
    return lines
