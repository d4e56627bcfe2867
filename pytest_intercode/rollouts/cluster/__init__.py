"""The cluster executor: rollouts on the nodes of a Ray cluster, decided on by one driver.

The driver (``executor.py``, ``driver.py``) keeps what is to be done in a table (``jobs.py``,
``placement.py``), which knows neither threads nor messages. It exchanges messages of bytes with
nodes (``messages.py``) over a transport; Ray's is in ``ray_nodes.py``. On a node a worker
(``worker.py``) runs rollouts by the same path as everywhere else.
"""
