"""The campaign of faults in short: what most often goes wrong, on bubblewrap."""

from __future__ import annotations

import random

import pytest

from tests.campaigns.faults import FEW_DESCRIPTORS, Laboratory, Setting, disturb

SHORT = ("SIGKILL of pytest",)
LONG = (
    "SIGKILL of keeper",
    "SIGKILL of starter",
    "full disk of the results",
    "results file renamed",
    FEW_DESCRIPTORS,
)


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    laboratory_of_tests = Laboratory(tmp_path_factory.mktemp("faults"), random.Random(1))
    laboratory_of_tests.measure(Setting("bubblewrap", 4, 0))
    return laboratory_of_tests


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize(
    "name", [*SHORT, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)]
)
def test_nothing_is_lost_and_nothing_left(laboratory: Laboratory, name: str) -> None:
    disturbed = disturb(laboratory, Setting("bubblewrap", 2, 0), name, after=0.8)
    assert disturbed is not None, "the run had nothing for the fault to be of"
    assert disturbed.problems == []
