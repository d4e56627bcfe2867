"""Which node a rollout begins on, and when a node gets no more work; without threads or Ray."""

from __future__ import annotations

import asyncio
from collections import Counter

from benchmarks.sleeping_nodes import SleepingNodes, SleepingProcess
from pytest_intercode.rollouts.cluster.nodes import Loss, NodeCounts, NodePool, Worker
from pytest_intercode.rollouts.cluster.settings import NodeSettings


def _pool(timeout: float = 300.0, **weights: float) -> NodePool:
    """Return a pool with a process on each of some nodes; on a running event loop."""
    machines = SleepingNodes(0)
    pool = NodePool(machines, NodeSettings, timeout)
    for name, weight in weights.items():
        counts = pool.counts.setdefault(name, NodeCounts())
        pool.add(name, Worker(name, weight, SleepingProcess(machines, name), counts))
    return pool


async def _spread(pool: NodePool, rollouts: int, avoid: tuple[str, ...] = ()) -> Counter[str]:
    for _ in range(rollouts):
        await pool.take(avoid)
    return Counter({worker.name: worker.running for worker in pool.workers.values()})


def test_nodes_share_a_run_by_their_weights() -> None:
    async def main() -> None:
        assert await _spread(_pool(a=1, b=2, c=4), 10) == {"a": 1, "b": 3, "c": 6}
        assert await _spread(_pool(a=1, b=1, c=1, d=1), 4) == dict.fromkeys("abcd", 1)
        pool = _pool(a=2, b=6)
        assert pool.slots == 8
        assert await _spread(pool, 8) == {"a": 2, "b": 6}

    asyncio.run(main())


def test_a_rollout_goes_back_only_where_no_other_node_takes_work() -> None:
    async def main() -> None:
        assert await _spread(_pool(a=1, b=1), 3, avoid=("a",)) == {"a": 0, "b": 3}
        assert await _spread(_pool(a=1), 2, avoid=("a",)) == {"a": 2}
        pool = _pool(a=1, b=1)
        pool.lose(pool.workers["b"], Loss("gone"))
        assert await _spread(pool, 2, avoid=("a",)) == {"a": 2, "b": 0}

    asyncio.run(main())


def test_a_node_with_three_faults_in_a_row_is_left_out_and_named() -> None:
    async def main() -> None:
        pool = _pool(timeout=10, a=1)
        worker = pool.workers["a"]
        for _ in range(2):
            pool.note_fault(worker, "no sandbox")
        pool.note_end(worker)  # which ends the row
        for _ in range(3):
            assert pool.slots == 1
            pool.note_fault(worker, "no sandbox")
        assert pool.slots == 0
        assert pool.stall_reason(0.0) == ""
        assert "a: 3 faults in a row, the last: no sandbox" in pool.stall_reason(10.0)

    asyncio.run(main())


def test_a_run_waits_for_nodes_and_gives_up() -> None:
    async def main() -> None:
        pool = _pool(timeout=60, a=1)
        worker = pool.workers["a"]
        pool.remove("a")
        assert pool.stall_reason(0.0) == pool.stall_reason(59.0) == ""
        pool.add("a", worker)
        assert pool.stall_reason(61.0) == ""
        pool.remove("a")
        assert pool.stall_reason(100.0) == pool.stall_reason(159.0) == ""
        assert "60 s" in pool.stall_reason(160.0)

    asyncio.run(main())
