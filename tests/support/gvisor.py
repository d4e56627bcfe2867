"""What of the sandbox's contract gVisor does not keep, each with the reason."""

from __future__ import annotations

__all__ = ["exception"]

_WHOLE = "a limit is that of the whole sandbox, its kernel included, and ends all of it"
_OWN = "the sandbox's own kernel answers, and nothing of it is the host's"
_OPEN = "its kernel shows root the descriptors and variables of every process"
_READ = "its files are read from the inside"

# By the test's name, and what its parameters contain.
_EXCEPTIONS = {
    "test_network_is_loopback_only": {"": _OWN},
    "test_network_when_asked_for": {"": "a runtime may be set up without a network"},
    "test_memory": {"": _WHOLE},
    "test_files_in_memory_do_not_end_the_sandbox": {"": _WHOLE},
    "test_processes": {"": _WHOLE},
    "test_bomb_of_an_earlier_action": {"": _WHOLE},
    "test_timeout_kills_a_bomb": {"": _WHOLE},
    "test_capabilities": {"": "its kernel's list of them is shorter"},
    "test_keeper_can_be_seen_when_unguarded": {"": _OWN},
    "test_refused": {
        **dict.fromkeys(("/proc/1/fd/0", "/proc/1/environ"), _OPEN),
        **dict.fromkeys(("mknod", "dmesg", "unshare -r", "nice", "cgroup", "kill -0 1"), _OWN),
    },
    "test_every_call_is_as_in_the_table": {"": _OWN},
    "test_no_wider_than_dockers_own": {"": _OWN},
    "test_sockets_of_no_use_are_refused": {"": _OWN},
    "test_arguments": {"": _OWN},
    "test_other_ways_to_call": {"": _OWN},
    "test_sandbox_is_walked_by_root": {"": _READ},
    "test_unpack": {"": "a file that gets a second name loses its owner"},
    "test_large_action": {"": "it is several times as slow"},
    "test_pool": {"": "it is several times as slow"},
}


def exception(name: str, parameters: str) -> str:
    """Return why a test cannot pass, or nothing.

    Args:
        name: the test's name, without its parameters.
        parameters: these, as its id has them.
    """
    reasons = _EXCEPTIONS.get(name, {})
    return next((reason for part, reason in reasons.items() if part in parameters), "")
