"""Parsers of what a runner writes for programs: JUnit's XML, and JSON."""

from __future__ import annotations

import json

from pytest_intercode.rewards.test_logs.junit import read_junit
from pytest_intercode.rewards.test_logs.results import Results, Status, Statuses

__all__ = ["parse_json_tests", "parse_junit"]


def parse_junit(log: str) -> Statuses:
    """Read JUnit's XML."""
    return read_junit(log.encode("utf-8", "replace"))


def parse_json_tests(log: str) -> Statuses:
    """Read ``{"tests": [{"name": ..., "status": ...}]}``, from the first brace to the last."""
    statuses = Results()
    try:
        tests = json.loads(log[log.find("{") : log.rfind("}") + 1])["tests"]
        for test in tests:
            name, status = test["name"], test["status"]
            if isinstance(name, str) and status in Status.__members__:
                statuses[name] = Status(status)
    except (ValueError, RecursionError, KeyError, TypeError):
        return {}
    return statuses
