"""Recordings of project tests: where they are, whether they are current, and their replay.

A test's recording has what its agent exchanged with models, and the result. In a replay, the real
agent runs in a real sandbox on the recorded answers. Before anything is started,
:func:`open_recording` decides what a test does; only its ``action`` allows a model to be called.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pytest_intercode.core.record import EpisodeRecord, Outcome, TaskRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.text import one_line
from pytest_intercode.environments.project.environment import ProjectState
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.masking import Masks, matches_masked
from pytest_intercode.gateway.recording import RecordedExchange, Replayer
from pytest_intercode.projects.read_files import find_read_files
from pytest_intercode.projects.recording_file import ExchangeLines, read_file, write_file
from pytest_intercode.results.format import from_row, to_row

__all__ = [
    "FOLDER",
    "ItemRecording",
    "RecordMode",
    "Recording",
    "RecordingHead",
    "StaleRecording",
    "find_recordings",
    "load_recording",
    "open_recording",
    "recording_path",
]

RecordMode: TypeAlias = Literal["", "none", "missing", "all"]
"""The value of ``--intercode-record``; empty where it is not given."""

Action: TypeAlias = Literal["replay", "live", "record"]
"""What a test does: answer from the recording, call models, or call and record them."""

FOLDER = "recordings"
"""The folder of recordings, next to the test files that they belong to."""

_SUFFIX = ".jsonl.gz"
_UNSAFE = re.compile(r"[^a-z0-9_.,=+@\[\]-]+")
_MAX_NAME_LENGTH = (
    100  # characters, without the digest and the suffix; file systems allow 255 bytes
)
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)")  # by Windows
# Outcomes of an agent that ran to its end, which may be recorded, whatever the test says.
_ENDED: frozenset[Outcome] = frozenset(("solved", "failed"))
_VOLATILE = ("host", "item", "node_id", "phases", "run_name", "shard", "test_digest", "test_passed")
"""The fields of a record about the run that it was in, not about what the agent did."""

_AGAIN = "record it again with --intercode-record=all"


class StaleRecording(ConfigurationError):
    """A recording was made with something that has since changed; the message says what."""


# -- where it is


def recording_path(node_id: str, test_file: Path) -> Path:
    """Return the path of an item's recording: below ``recordings`` next to its test's file.

    A name that a file system might change, shorten or confuse with another ends with a digest. This
    includes names with upper case, which some file systems do not distinguish from lower case.

    Args:
        node_id: the item's node id, such as ``tests/test_rules.py::test_uses_uv[codex]``.
        test_file: the file of its test.
    """
    name = ".".join(node_id.split("::")[1:]) or node_id
    return test_file.parent / FOLDER / _safe(test_file.stem) / f"{_safe(name)}{_SUFFIX}"


def find_recordings(folder: Path) -> list[Path]:
    """Return the files of recordings in a folder called ``recordings``."""
    return sorted(folder.glob(f"*/*{_SUFFIX}"))


def _safe(name: str) -> str:
    safe = _UNSAFE.sub("-", name.lower()).strip("-.")[:_MAX_NAME_LENGTH]
    if safe == name and not _RESERVED.match(safe):
        return safe
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe or 'item'}-{digest}"


def _test_of(node_id: str) -> str:
    """Return the part of a node id that does not depend on where pytest is started."""
    path, separator, rest = node_id.partition("::")
    file = path.replace("\\", "/").rpartition("/")[2]
    return f"{file}{separator}{rest}"


# -- what it was made with


@dataclass(frozen=True)
class RecordingHead:
    """What a recording was made with.

    Attributes:
        test: the name of the test's file and the rest of its node id.
        prompt: the agent's prompt.
        treatment: what was laid over the project; empty if the test has no treatments.
        agent: the agent as ``--intercode-agent`` names it.
        agent_arguments: the agent's arguments.
        agent_version: the version of its program; empty if it is not known.
        inputs: digests of everything else that decides what happens, by names such as ``fake gh``
            or ``answers``.
        files: digests of the project's files, by their paths: in a recording, of those that the
            agent has read; for the current state, of all files.
        models: the models that were asked.
    """

    test: str
    prompt: str
    treatment: str = ""
    agent: str = ""
    agent_arguments: Mapping[str, str] = field(default_factory=dict)
    agent_version: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()

    @classmethod
    def of_item(cls, node_id: str, prompt: str, **more: Any) -> RecordingHead:
        """Return the head for a run of an item; ``more`` are further fields."""
        return cls(_test_of(node_id), prompt, **more)

    def difference(self, now: RecordingHead) -> str:
        """Return what has changed since; empty if nothing has.

        Args:
            now: the current state; its ``files`` are all files of the project.
        """
        changes = [
            *_change("the prompt", self.prompt, now.prompt),
            *_change("the treatment", self.treatment, now.treatment),
            *_change("the agent", self.agent, now.agent),
            *_changes("the agent's argument", self.agent_arguments, now.agent_arguments),
            # An agent that is not installed has no version; its record is replayed then.
            *(
                _change("the agent's version", self.agent_version, now.agent_version)
                if self.agent_version and now.agent_version
                else ()
            ),
            *_changes("", self.inputs, now.inputs),
        ]
        present = {path: now.files.get(path, "") for path in self.files}
        changed_files = [path for path in self.files if self.files[path] != present[path]]
        for path in changed_files[:3]:
            verb = "was changed" if present[path] else "is gone"
            changes.append(f"{path}, which the agent has read, {verb}")
        if len(changed_files) > 3:
            changes.append(f"so were {len(changed_files) - 3} more files that it has read")
        # The recording has all such files that existed when it was made.
        new_files = [path for path in find_read_files((), now.files) if path not in self.files]
        changes += [f"{path}, which agents read, is new" for path in new_files[:3]]
        if len(new_files) > 3:
            changes.append(f"so are {len(new_files) - 3} more files that agents read")
        return "; ".join(changes)


def _change(name: str, before: str, now: str) -> list[str]:
    if matches_masked(before, now):
        return []
    index = next(
        (n for n, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1]),
        min(len(before), len(now)),
    )
    start = max(0, index - 20)
    return [f"{name} was {before[start:][:60]!r} and is {now[start:][:60]!r}"]


def _changes(name: str, before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    changes = []
    for key in sorted({*before, *now}):
        if before.get(key) == now.get(key):
            continue
        label = f"{name} {key}".strip()
        if key not in before or key not in now:
            changes.append(f"{label} is {'new' if key in now else 'gone'}")
        elif not name:  # digests mean nothing to people
            changes.append(f"{label} is changed")
        else:
            changes += _change(label, before[key], now[key])
    return changes


# -- what it holds


@dataclass(frozen=True)
class Recording:
    """A recording, as read from its file.

    Attributes:
        path: the file.
        head: what it was made with.
        exchanges: requests and answers, in the order in which they ended.
        record: the line of the episode's record, without what names its run; None if there is none.
        run: what else was kept about the run, as given to :meth:`ItemRecording.save`.
    """

    path: Path
    head: RecordingHead
    exchanges: Sequence[RecordedExchange]
    record: Mapping[str, Any] | None
    run: Mapping[str, Any]

    def check(self, now: RecordingHead) -> None:
        """Check that the recording is current.

        Raises:
            StaleRecording: something has changed; the message is one line.
            ConfigurationError: it is the recording of another test.
        """
        if self.head.test != now.test:
            raise ConfigurationError(
                f"{self.path} is the recording of another test, {self.head.test}: move it away, "
                "and record this one with --intercode-record=missing"
            )
        if difference := self.head.difference(now):
            raise StaleRecording(
                one_line(f"the recording {self.path.name} is stale: {difference}; {_AGAIN}")
            )

    def episode(self, task: Task, node_id: str) -> EpisodeRecord:
        """Return the record of the episode, as if the agent had just played it.

        Args:
            task: the task of the episode.
            node_id: the node id of its item.

        Raises:
            ConfigurationError: the recording has no record, or not one of a project test.
        """
        record = from_row(self.record, str(self.path))
        try:
            _check_state(record.state)
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigurationError(
                f"{self.path} is not a recording: the state in its record: {error!s:.100}"
            ) from None
        return replace(record, task=TaskRecord.of(task, record.task.digest), node_id=node_id)

    def replayer(self, masks: Masks) -> Replayer:
        """Return the replayer that answers an agent from this recording."""
        return Replayer(self.exchanges, f"this test ({self.path})", masks, f"; {_AGAIN}")


def _check_state(state: Mapping[str, Any]) -> None:
    """Check that a run can be made from the state in a record.

    Raises:
        TypeError, ValueError, AttributeError: it cannot.
    """
    ProjectState.from_json(state.get("project", {}))


def load_recording(path: Path) -> Recording:
    """Read a recording.

    Raises:
        ConfigurationError: it is not a recording, is damaged, or was written by a newer version;
            the message is one line.
        FileNotFoundError: there is no such file.
    """
    content = read_file(path)
    try:
        head = _read_head(content.head)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"{path} is not a recording: its head: {error!s:.100}") from None
    return Recording(path, head, content.exchanges, content.record, content.run)


def _read_head(row: Mapping[str, Any]) -> RecordingHead:
    values: dict[str, Any] = {}
    for column in fields(RecordingHead):
        value = row[column.name]
        if column.name == "models":
            value = tuple(map(str, value))
        elif column.name in ("agent_arguments", "inputs", "files"):
            value = {str(key): str(text) for key, text in value.items()}
        elif not isinstance(value, str):
            raise TypeError(f"{column.name} is not a text")
        values[column.name] = value
    return RecordingHead(**values)


# -- what a test does


@dataclass(frozen=True)
class ItemRecording:
    """What a test does with its recording; made by :func:`open_recording` before the test starts.

    Attributes:
        path: the file.
        head: the current state.
        action: what the test does.
        recording: the recording that is replayed; None if models are called.
        recorder: records the exchanges with models; None if nothing is recorded.
        replayer: answers the agent; None if models are called.
        masks: the masks for recordings.
    """

    path: Path
    head: RecordingHead
    action: Action
    masks: Masks
    recording: Recording | None = None
    recorder: ExchangeLines | None = None
    replayer: Replayer | None = None

    def save(
        self,
        record: EpisodeRecord,
        *,
        files: Mapping[str, str] | None = None,
        run: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write the recording, if the test records and its agent ran to its end.

        Only then is an existing recording replaced, and only by a complete one.

        Args:
            record: the record of the episode.
            files: digests of the project's files that the agent has read.
            run: what else is to be kept, as JSON values.

        Returns:
            Whether it was written.

        Raises:
            ConfigurationError: it is too large, or cannot be written; the message is one line.
        """
        if self.recorder is None or record.outcome not in _ENDED:
            return False
        if self.recorder.is_full:
            raise ConfigurationError(
                f"{self.path}: the agent's requests and their answers are too large"
            )
        models = tuple(sorted(self.recorder.models))
        head = replace(_masked(self.head, self.masks), files=dict(files or {}), models=models)
        row = {name: value for name, value in to_row(record).items() if name not in _VOLATILE}
        value = self.masks.value
        write_file(self.path, asdict(head), self.recorder.lines, value(row), value(run or {}))
        return True


def open_recording(
    mode: RecordMode,
    path: Path,
    head: RecordingHead,
    *,
    reaches_models: bool,
    masks: Masks,
) -> ItemRecording:
    """Decide what a test does, based on its recording, the option and the user's setup.

    ===============  ============  ===========  ==========================  ====================
    the recording    (no option)   none         missing                     all
    ===============  ============  ===========  ==========================  ====================
    is current       replayed      replayed     replayed                    recorded again
    is stale         fails         fails        recorded again              recorded again
    is not there     live          an error     recorded                    recorded
    cannot be read   an error      an error     an error                    an error
    ===============  ============  ===========  ==========================  ====================

    If models would be called but none can be reached, it is an error.

    Args:
        mode: the option.
        path: where the recording is, or will be.
        head: the current state, with all files of the project.
        reaches_models: whether the user has set up a key or a server, or the agent needs neither.
        masks: the masks for recordings.

    Raises:
        StaleRecording: it is stale, and may not be recorded again.
        ConfigurationError: nothing can be replayed, and models may not be called or cannot be
            reached; or the file is not a recording of this test. The message is one line.
    """
    name = f"{path.parent.name}/{path.name}"
    reason = f"there is no recording {name}"
    if path.is_symlink() or path.exists():
        recording = load_recording(path)
        try:
            recording.check(_masked(head, masks))
        except StaleRecording as stale:
            if mode in ("", "none"):
                raise
            reason = str(stale)
        else:
            if mode != "all":
                return ItemRecording(
                    path, head, "replay", masks, recording, replayer=recording.replayer(masks)
                )
            reason = "it is to be recorded again"
    if mode == "none":
        raise ConfigurationError(
            f"{reason}, and --intercode-record=none does not allow model calls; record it with "
            "--intercode-record=missing"
        )
    if not reaches_models:
        raise ConfigurationError(
            f"{reason}, and no model can be reached: set OPENAI_API_KEY, ANTHROPIC_API_KEY or the "
            "address of a server (OPENAI_BASE_URL, ANTHROPIC_BASE_URL), and record it with "
            f"--intercode-record={mode or 'missing'}"
        )
    if not mode:
        return ItemRecording(path, head, "live", masks)
    return ItemRecording(path, head, "record", masks, recorder=ExchangeLines(masks))


def _masked(head: RecordingHead, masks: Masks) -> RecordingHead:
    """Return a head with its texts masked, as in a recording."""
    return replace(
        head,
        prompt=masks.text(head.prompt),
        agent_arguments=masks.value(head.agent_arguments),
        agent_version=masks.text(head.agent_version),
        agent=masks.text(head.agent),
        test=masks.text(head.test),
        treatment=masks.text(head.treatment),
    )
