"""The calls that a record keeps: bounded, and without keys."""

from __future__ import annotations

from pytest_intercode.core.call import ShimCall, shorten_calls
from pytest_intercode.core.record import EpisodeRecord, TaskRecord
from pytest_intercode.export.atif import trajectory
from pytest_intercode.page.trajectories import episode
from pytest_intercode.results.format import from_line, to_line


def _record(*calls: ShimCall, left_out: int = 0) -> EpisodeRecord:
    task = TaskRecord("test_it", "Release it.", "project", "test_rules.py")
    return EpisodeRecord(
        *(task, "failed", 0.0, (), 5, 0.0, "strict"), calls=calls, calls_left_out=left_out
    )


def test_keys_are_masked_and_long_texts_are_cut() -> None:
    call = ShimCall("gh", ("auth", "secret"), "/secret", "secret" + "x" * 9_000)
    (short_call,) = shorten_calls([call], lambda text: text.replace("secret", "-"))
    assert short_call.arguments == ("auth", "-")
    assert short_call.directory == "/-"
    assert short_call.input == "-" + "x" * 3_999
    assert short_call.truncated
    (same_call,) = shorten_calls([ShimCall("gh", ("a",), "/")], str)
    assert same_call == ShimCall("gh", ("a",), "/")


def test_of_many_calls_the_first_are_kept() -> None:
    assert len(shorten_calls([ShimCall("gh", (), "/")] * 5_000, str)) == 1_000
    long_calls = shorten_calls([ShimCall("gh", ("x" * 9_000,) * 500, "/")] * 100, str)
    assert not long_calls  # one of them is more than a record keeps of all
    assert len(shorten_calls([ShimCall("gh", ("x" * 4_000,), "/")] * 100, str)) == 65


def test_a_line_has_them_in_whatever_bytes() -> None:
    record = _record(ShimCall("gh", ("\udcff",), "/", status=1, start_time=1.25), left_out=3)
    read = from_line(to_line(record))
    assert read.calls == (ShimCall("gh", ("\\udcff",), "/", status=1, start_time=1.25),)
    assert read.calls_left_out == 3
    assert not read.for_statistics().calls
    assert "calls" not in to_line(_record())


def test_the_page_and_atif_have_them() -> None:
    record = _record(ShimCall("gh", ("a b", "\x1b[2J"), "/", status=0, seconds=0.12), left_out=2)
    first, last = episode(record)["calls"]
    assert first.startswith("gh 'a b' ")
    assert "\x1b" not in first
    assert first.endswith("(0, 0.1 s)")
    assert last == "and 2 more"
    (call,) = trajectory(record)["extra"]["calls"]
    assert (call["program"], call["status"]) == ("gh", 0)
