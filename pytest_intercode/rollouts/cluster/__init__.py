"""The cluster executor: rollouts on the nodes of a Ray cluster, controlled by one driver.

Ray runs one of our actors on each node (``node.py``), places it, transports bytes and notices its
end (``ray_nodes.py``). Our own parts are the choice of the next node (``nodes.py``), a coroutine
for each rollout that has it played and restarts it if it is lost (``jobs.py``), the thread that
these run on and the interface for their owners (``executor.py``), files by content (``files.py``)
and the run's budget, which an actor next to the driver counts (``budget.py``).
"""
