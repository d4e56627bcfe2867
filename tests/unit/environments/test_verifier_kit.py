"""The verifier kit: what it lacks is named, and pytest that never ran is no failure."""

from __future__ import annotations

import subprocess
from importlib import resources
from pathlib import Path

import pytest

from pytest_intercode.core.task import Verification
from pytest_intercode.environments.swe.kit import kit_folder, kit_with
from pytest_intercode.errors import MissingProgram
from pytest_intercode.rewards.verification import NothingRan, TestRun, reward_of_run

_KIT = ("pytest==8.4.1", "numpy>=2")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_what_the_kit_lacks_is_named_with_the_command() -> None:
    with pytest.raises(MissingProgram) as caught:
        kit_with(_KIT, "a/task.toml: task 'a'")
    assert str(caught.value) == (
        "a/task.toml: task 'a': its tests install pytest==8.4.1, numpy>=2 from the network, but "
        "the verifier kit does not have them; add them with: pytest-intercode kit pytest==8.4.1 "
        "'numpy>=2'"
    )
    with pytest.raises(MissingProgram, match=r"its tests install curl .*: pytest-intercode kit$"):
        kit_with((), "a")


def test_a_kit_without_packages_is_enough_for_scripts_that_install_none() -> None:
    (kit_folder() / "bin").mkdir(parents=True)
    assert kit_with((), "a") == kit_folder()


@pytest.mark.parametrize(
    ("log", "ran"),
    [
        ("==== 1 failed, 2 passed in 0.10s ====\n", True),
        ("=========== 1 error in 0.01s ===========", True),
        ("==== no tests ran in 0.00s ====", True),
        ("bash: uvx: command not found\n", False),
        ("curl: (6) Could not resolve host: astral.sh\n1 failed\n", False),
        ("", False),
    ],
)
def test_a_reward_of_0_without_a_run_of_pytest_is_none(log: str, ran: bool) -> None:
    verification = Verification("/tests/test.sh", parser="reward", report="/logs", kit=_KIT)
    run = TestRun(0, "itself", log, {"/logs/reward.txt": b"0"})
    if ran:
        assert reward_of_run(verification, run)[0].value == 0.0
    else:
        with pytest.raises(NothingRan, match=r"pytest never ran; the test script printed last: "):
            reward_of_run(verification, run)


def test_a_reward_file_that_is_none_is_no_result() -> None:
    verification = Verification("/tests/test.sh", parser="reward", report="/logs")
    for reports in ({}, {"/logs/reward.txt": b"nan"}):
        with pytest.raises(NothingRan, match=r"reward.*; it printed last: x"):
            reward_of_run(verification, TestRun(0, "itself", "x", reports))
    run = TestRun(1, "itself", "", {"/logs/reward.txt": b"0.5"})
    assert reward_of_run(verification, run)[1] == {"rewards": {"reward": 0.5}}


def test_the_stand_ins_are_a_script_of_bash() -> None:
    script = resources.files("pytest_intercode.environments.swe").joinpath("standins.sh")
    subprocess.run(["bash", "-n", str(script)], check=True)
