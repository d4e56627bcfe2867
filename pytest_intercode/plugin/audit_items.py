"""The test that every task becomes with ``--intercode-audit``. Collected once for each suite."""

from __future__ import annotations

import pytest

from pytest_intercode.auditing.auditor import Auditor
from pytest_intercode.auditing.findings import Finding
from pytest_intercode.core.task import Task
from pytest_intercode.core.text import escape_for_terminal
from pytest_intercode.errors import InfrastructureError
from pytest_intercode.plugin.run import SUITE_TASKS, run_of

_AUDITORS = pytest.StashKey[Auditor]()


@pytest.fixture
def faults(request: pytest.FixtureRequest, intercode_task: Task) -> list[Finding]:
    """What is wrong with the task; found in setup, so that a fault of the machine is an error."""
    suite: pytest.Module = request.node.getparent(pytest.Module)
    if _AUDITORS not in suite.stash:
        provider = run_of(request.config).composition.provider
        suite.stash[_AUDITORS] = Auditor(suite.stash[SUITE_TASKS], provider)
    auditor = suite.stash[_AUDITORS]
    failure = ""
    try:
        findings, left_out = auditor.find_faults(intercode_task)
    except InfrastructureError as error:
        failure = escape_for_terminal(str(error))
    if failure:  # outside of the handler, or pytest would show the error twice
        pytest.fail(failure, pytrace=False)
    if left_out:
        pytest.skip(escape_for_terminal(left_out))
    return findings


def test_is_sound(faults: list[Finding]) -> None:
    """The audit finds no fault in the task."""
    if faults:
        pytest.fail(escape_for_terminal("\n".join(map(str, faults))), pytrace=False)
