"""The cluster executor: rollouts on the nodes of a Ray cluster, decided on by one driver.

Ray keeps one actor of ours on each node (``node.py``), places it, carries bytes and notices its
end (``ray_nodes.py``). Ours are which node is next (``nodes.py``), a coroutine for each rollout
that has it played and begins it again where it is lost (``jobs.py``), the thread that these run on
and what their owners call (``executor.py``), files by content (``files.py``) and the run's budget,
which an actor next to the driver counts (``budget.py``).
"""
