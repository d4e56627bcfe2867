"""Grades predictions: patches that were made elsewhere, applied in a sandbox and verified.

As in SWE-bench, a patch that ``git apply`` refuses is tried with a merge, then in parts, then with
``patch``; each attempt begins with the unchanged repository.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_intercode.auditing.playing import play
from pytest_intercode.core.patches import PatchError, read_patch
from pytest_intercode.core.task import FileSpec, Task
from pytest_intercode.core.text import one_line
from pytest_intercode.environments.answer import Answer
from pytest_intercode.environments.swe.fields import repository_of
from pytest_intercode.errors import InfrastructureError, TaskError
from pytest_intercode.results.predictions import Prediction
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["GOLD", "Graded", "gold_predictions", "grade", "report_line"]

GOLD = "gold"
_FILE = "/tmp/.prediction.diff"
_APPLIED = "intercode: the patch is applied"
_APPLY_TIMEOUT = 120.0  # seconds to apply a patch in all ways


@dataclass(frozen=True)
class Graded:
    """One prediction and its grade.

    Attributes:
        task: the task.
        prediction: the patch.
        reward: 1.0 is resolved; None if it could not be graded.
        applied: whether the patch could be applied.
        reason: what is wrong; empty if it is resolved.
        tests: the tests by their results, if any were run.
    """

    task: Task
    prediction: Prediction
    reward: float | None
    applied: bool = False
    reason: str = ""
    tests: Mapping[str, Any] | None = None

    @property
    def resolved(self) -> bool:
        """Whether every test is as it should be."""
        return self.reward == 1.0


def gold_predictions(tasks: Mapping[str, Task]) -> dict[str, Prediction]:
    """Return the reference patches as predictions, to check whether tasks can be graded here."""
    return {name: Prediction(name, GOLD, task.gold[0]) for name, task in tasks.items()}


def grade(provider: SandboxProvider, task: Task, prediction: Prediction) -> Graded:
    """Apply a prediction in its own sandbox, and verify the result.

    A patch that is missing or refused gets 0, and no sandbox is started for it.

    Args:
        provider: where sandboxes come from.
        task: the task, which has a repository and a verification.
        prediction: the patch.
    """
    if task.skip is not None:
        return Graded(task, prediction, None, reason=f"the task is skipped: {task.skip}")
    patch = prediction.patch
    if patch is None or not patch.strip():
        return Graded(task, prediction, 0.0, reason="there is no patch")
    text = patch if patch.endswith("\n") else f"{patch}\n"
    try:
        read_patch(patch)
        spec = FileSpec("file", text.encode("utf-8", "surrogateescape"))
    except (PatchError, UnicodeEncodeError) as error:
        return Graded(task, prediction, 0.0, reason=f"the patch is refused: {error}")
    with_patch = replace(task, files={**task.files, _FILE: spec})
    repository = repository_of(task)
    assert repository is not None
    answer = Answer(actions=(_build_apply_action(repository.at),))
    try:
        played = play(provider, with_patch, answer, action_timeout=_APPLY_TIMEOUT)
    except (TaskError, InfrastructureError) as error:
        return Graded(task, prediction, None, reason=str(error))
    output = str(played.observations[0]) if played.observations else ""
    if _APPLIED not in output:
        last = output.strip().rpartition("\n")[2]
        return Graded(
            task, prediction, 0.0, reason=f"the patch does not apply: {one_line(last)[:300]}"
        )
    tests = played.state.get("tests")
    return Graded(
        task,
        prediction,
        played.reward.value,
        applied=True,
        reason=played.reward.reason,
        tests=tests if isinstance(tests, Mapping) else None,
    )


def _build_apply_action(folder: str) -> str:
    """Return the action that applies the patch, or prints why it cannot be applied."""
    clean = "git checkout -q -- . ; git clean -fdq"
    tries = [
        f"git apply --whitespace=nowarn {_FILE}",
        f"git apply --whitespace=nowarn --3way {_FILE}",
        f"git apply --whitespace=nowarn --reject {_FILE}",
        f"patch --batch --forward --fuzz=5 --no-backup-if-mismatch -p1 -i {_FILE}",
    ]
    lines = [f"cd {shlex.quote(folder)} || exit", "applied=", "first="]
    for attempt in tries:
        lines.append(
            f"[ $applied ] || if said=$({attempt} 2>&1 </dev/null); then applied=1; else "
            f'first=${{first:-$(printf %s "$said" | grep -m1 error)}}; {clean}; fi'
        )
    lines += [
        f"[ $applied ] || if git apply --check --reverse {_FILE} 2>/dev/null; then applied=1; fi",
        "git reset -q",
        f'if [ $applied ]; then echo {shlex.quote(_APPLIED)}; else echo "$first"; fi',
    ]
    return "\n".join(lines)


def report_line(graded: Graded) -> dict[str, Any]:
    """Return SWE-bench's report on a prediction, with the reward and its reason."""
    tests = graded.tests or {}
    status = {
        "FAIL_TO_PASS": {"success": tests.get("fixed", []), "failure": tests.get("unfixed", [])},
        "PASS_TO_PASS": {"success": tests.get("kept", []), "failure": tests.get("broken", [])},
    }
    return {
        "instance_id": graded.prediction.instance,
        "model_name_or_path": graded.prediction.model,
        "patch_is_None": graded.prediction.patch is None,
        "patch_exists": bool(graded.prediction.patch),
        "patch_successfully_applied": graded.applied,
        "resolved": graded.resolved,
        "reward": graded.reward,
        "reason": graded.reason,
        **({"tests_status": status} if graded.tests else {}),
    }
