"""The cluster executor: rollouts on the nodes of a Ray cluster, decided on by one driver.

The driver (``executor.py``) keeps what is left to do in a schedule (``schedule.py``), which knows
neither threads nor clocks. It talks to nodes in messages of bytes (``messages.py``) over a
transport; Ray's is in ``ray_transport.py``, the only module that imports Ray. On a node a player
(``player.py``) runs rollouts by the same path as everywhere else.
"""
