"""What an agent changes in the process is set back."""

from __future__ import annotations

import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from pytest_intercode.rollouts.isolation import isolated


def test_filters_of_warnings_are_set_back_and_not_reported() -> None:
    """Or an agent could turn the warning about what it left into a failure of the item."""
    before = list(warnings.filters)
    with isolated() as left:
        warnings.simplefilter("error")
    assert list(warnings.filters) == before
    assert left == []


def test_an_idle_worker_of_a_pool_is_not_reported() -> None:
    """A library keeps one for all its clients, and it is nobody's who uses the library first."""
    with isolated() as left:
        pool = ThreadPoolExecutor(thread_name_prefix="of-a-library")
        pool.submit(int).result()
        time.sleep(0.02)
    assert left == []
    pool.shutdown()


def test_a_worker_at_work_is_reported() -> None:
    ended = threading.Event()
    with isolated() as left:
        pool = ThreadPoolExecutor(thread_name_prefix="of-a-library")
        pool.submit(ended.wait, 20)
    assert left == ["threads that still run: of-a-library_0"]
    ended.set()
    pool.shutdown()


def test_a_thread_that_is_about_to_end_is_not_reported() -> None:
    with isolated() as left:
        threading.Thread(target=time.sleep, args=(0.02,)).start()
    assert left == []


def test_idle_workers_of_anyio_are_not_reported() -> None:
    anyio = pytest.importorskip("anyio")
    began, ended = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        ended.wait(9)

    async def main() -> list[str]:
        with isolated() as left:
            await anyio.to_thread.run_sync(int)
            await anyio.sleep(0.02)
        return left

    async def busy() -> list[str]:
        with isolated() as left:
            async with anyio.create_task_group() as group:
                group.start_soon(partial(anyio.to_thread.run_sync, wait, abandon_on_cancel=True))
                while not began.is_set():
                    await anyio.sleep(0.001)
                group.cancel_scope.cancel()
        ended.set()
        return left

    assert anyio.run(main) == []
    assert anyio.run(busy) == ["threads that still run: AnyIO worker thread"]
