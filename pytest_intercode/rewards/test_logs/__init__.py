"""The status of each test in a log, by the test's name.

Parsers read the output of test runners, and return what SWE-bench 5's parsers return for the same
log. The graded side wrote everything that they read, so each takes time in proportion to the log's
length, and none is given more than :data:`MAX_LOG_LENGTH`.

A line whose first word merely begins with a status (``ERROR:``) is not a result. SWE-bench records
the word, which is then neither a pass nor a failure.
"""

from pytest_intercode.rewards.test_logs.junit import junit_name, read_junit
from pytest_intercode.rewards.test_logs.registry import parse
from pytest_intercode.rewards.test_logs.results import MAX_LOG_LENGTH, PASSING, Status, Statuses

__all__ = ["MAX_LOG_LENGTH", "PASSING", "Status", "Statuses", "junit_name", "parse", "read_junit"]
