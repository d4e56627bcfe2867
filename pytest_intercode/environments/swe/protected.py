"""Which changes of an agent are not tested, though they are part of its patch.

A verdict rests on tests and on what runs them. What an agent did to these stays out of the test
run, unless gold changes the same file: then the task asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pytest_intercode.core.task import Task
from pytest_intercode.environments.swe.gold import is_patch, paths_of_patch

__all__ = ["left_out"]

# Tests and their helpers; what configures or extends a test runner; what git, an interpreter or a
# shell reads by itself.
_PATTERNS = re.compile(
    r"(?:.*/)?(?:"
    r"(?:tests?|__tests__|spec|t)/.*"
    r"|(?:test_[^/]*|[^/]*_tests?)\.(?:py|go|c|lua|sh|pl|rb)"
    r"|[^/]*[.-](?:test|spec)\.[cm]?[jt]sx?"
    r"|[^/]*\.(?:t|bats)"
    r"|conftest\.py|pyproject\.toml|\.?pytest\.(?:ini|toml)|tox\.ini|setup\.cfg|\.coveragerc"
    r"|(?:site|user)customize\.py|[^/]*\.(?:pth|egg-link)|[^/]*\.(?:dist|egg)-info/.*"
    r"|\.(?:bash|z?sh|profile)[^/]*|\.npmrc|\.mocharc[^/]*|(?:jest|vitest)\.config\.[^/]*"
    r"|\.git(?:attributes|modules)"
    r")",
    re.DOTALL,
)


def left_out(task: Task, changed: Iterable[str]) -> Iterator[str]:
    """Yield those changed paths of a task with a verification that are not tested.

    Args:
        task: the task.
        changed: paths, relative to the repository.
    """
    verification = task.verification
    assert verification is not None
    names = (*verification.fail_to_pass, *verification.pass_to_pass)
    named = {name.partition("::")[0] for name in names if "::" in name}
    asked = {path for gold in task.gold if is_patch(gold) for path in paths_of_patch(gold)}
    brought = paths_of_patch(verification.patch)
    for path in changed:
        if path in brought or (path not in asked and (path in named or _PATTERNS.fullmatch(path))):
            yield path
