"""Episodes that run ahead of pytest's order (``--intercode-concurrency``), in one process.

Items are reported in order, as ever. While pytest waits for one, the episodes of those after it
run on threads of their own; when an item's turn comes, its fixtures find its episode, running or
over. A pytest plugin, imported only when it is asked for.
"""

from pytest_intercode.ahead.runner import Ahead

__all__ = ["Ahead"]
