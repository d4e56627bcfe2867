"""What a run has counted so far."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from pytest_intercode.core.record import EpisodeRecord, TaskRecord
from pytest_intercode.core.usage import Usage
from pytest_intercode.plugin.progress import Progress

RECORD = EpisodeRecord(TaskRecord("t", "q", "bash"), "solved", 1.0, (), 10, 1.0, "strict")


class SlowUsage(Usage):
    """Its tokens take a while to be added up, so that another thread has its turn."""

    @property
    def tokens(self) -> int:
        time.sleep(0.05)
        return super().tokens


def test_threads_count_at_the_same_time(pytestconfig: pytest.Config) -> None:
    progress = Progress(pytestconfig)
    usage = SlowUsage(input_tokens=10, cost=1.0)
    # Two of them are tries of one item.
    records = [replace(RECORD, node_id=node_id, usage=usage) for node_id in "aabcd"]
    threads = [threading.Thread(target=progress.note, args=(record,)) for record in records]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    status = progress.status()
    assert (status.done, status.solved, status.tokens, status.cost) == (4, 4, 40, 4.0)
