"""What a log of tests says: the status of each test by its name.

Parsers know the output of test runners, and give what those of SWE-bench 5 give on the same log.
Everything they read was written by the side that is graded, so each takes time that grows with the
log's length and no faster, and none is given more than :data:`MAX_LOG_LENGTH`.

A line whose first word merely begins with a status (``ERROR:``) is not a result. SWE-bench records
the word, which is then neither a pass nor a failure.
"""

from pytest_intercode.rewards.test_logs.junit import junit_name, read_junit
from pytest_intercode.rewards.test_logs.registry import parse
from pytest_intercode.rewards.test_logs.results import MAX_LOG_LENGTH, PASSING, Status, Statuses

__all__ = ["MAX_LOG_LENGTH", "PASSING", "Status", "Statuses", "junit_name", "parse", "read_junit"]
