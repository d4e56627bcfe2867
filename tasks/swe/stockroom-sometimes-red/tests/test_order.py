import os
import subprocess
import sys
from pathlib import Path

import pytest

from stockroom.report import suppliers

DELIVERIES = [
    ("M-5", 4, "Reichelt"),
    ("A-1", 2, "Farnell"),
    ("Z-9", 6, "Reichelt"),
    ("A-1", 1, "Distrelec"),
    ("C-3", 9, "Reichelt"),
    ("M-5", 3, "Conrad"),
    ("A-1", 5, "Reichelt"),
    ("Z-9", 1, "Adafruit"),
    ("M-5", 2, "Farnell"),
]
EXPECTED = """\
    24 Reichelt: M-5, Z-9, C-3, A-1
     4 Farnell: A-1, M-5
     1 Distrelec: A-1
     3 Conrad: M-5
     1 Adafruit: Z-9
"""


@pytest.fixture
def delivered(store):
    for number in ("A-1", "C-3", "M-5", "Z-9"):
        store.add(number, f"part {number}")
    for delivery in DELIVERIES:
        store.receive(*delivery)
    return store


def test_the_report_whatever_the_seed_of_hashes(delivered, path):
    for seed in range(8):
        shown = subprocess.run(
            [sys.executable, "-m", "stockroom", path, "suppliers"],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stdout == EXPECTED, f"PYTHONHASHSEED={seed}"


def test_totals(delivered):
    report = {supplier: total for supplier, total, _ in suppliers(delivered.connection)}
    assert report == {
        "Reichelt": 24,
        "Farnell": 4,
        "Distrelec": 1,
        "Conrad": 3,
        "Adafruit": 1,
    }


def test_what_is_taken_counts_for_nobody(delivered):
    before = [row[:2] for row in suppliers(delivered.connection)]
    delivered.take("M-5", 2)
    delivered.receive("M-5", 8)
    assert sorted(row[:2] for row in suppliers(delivered.connection)) == sorted(before)
