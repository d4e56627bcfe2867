"""The table of published attacks names cases that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.attacks.cases import areas

_PAGE = Path(__file__).parents[2] / "docs" / "security.md"
_ROOT = _PAGE.parents[1]


def test_each_published_attack_is_held_by_a_case_that_there_is() -> None:
    section = _PAGE.read_text().split("\n## Published attacks\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line[:2] == "| "][2:]
    assert len(rows) >= 20
    cases = {f"{name}/{case.id}": case for name, area in areas() for case in area.cases}
    for row in rows:
        mechanism, source, held = row
        assert source.strip()
        named = re.findall(r"`([\w/-]+)`", held)
        cited = [name for name in named if name in cases or (_ROOT / name).exists()]
        assert cited, mechanism
        assert [name for name in named if "/" in name] == cited, mechanism
        limits = [name for name in cited if name in cases and cases[name].known_limit]
        assert not limits or "limit" in held, mechanism
