"""The strict reward for bash, held against its promises on generated states."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pytest_intercode.core.task import Normaliser, RewardOptions
from pytest_intercode.rewards.bash_strict import BashState, bash_strict_reward, normalise
from pytest_intercode.sandboxes.protocol import Entry

_PATHS = ("/a", "/b", "/d", "/d/x", "/tmp/t", "/work/w")
_FILE = Entry("f", 0o644, 0, 0, "aa")
_OTHER = Entry("f", 0o644, 0, 0, "bb")
_ENTRIES = st.sampled_from(
    [
        None,
        _FILE,
        _OTHER,
        replace(_FILE, mode=0o600),
        replace(_FILE, uid=7),
        replace(_FILE, gid=7),
        Entry("d", 0o755, 0, 0),
        Entry("l", 0o777, 0, 0, "aa"),
    ]
)
_OUTPUTS = st.text(st.sampled_from("ab3 \n.0"), max_size=8)
_DEFAULTS = RewardOptions()
_NORMALISERS = [
    Normaliser("trailing-space"),
    Normaliser("line-order"),
    Normaliser("numbers"),
    Normaliser("pattern", "a+", ""),
    Normaliser("pattern", "(?s).+", ""),
    Normaliser("pattern", r"(?s)\A.*\Z", "same"),
    Normaliser("pattern", "^", "> "),
]
_OPTIONS = st.builds(
    RewardOptions,
    st.sampled_from(["when-gold-prints", "always", "never"]),
    st.lists(st.sampled_from(_NORMALISERS), max_size=3).map(tuple),
    st.sampled_from([(), ("/tmp",), ("w",), ("/",)]),
)


@dataclass(frozen=True)
class Side:
    """What one side did: the paths that it wrote, with what it left there, and what it printed."""

    writes: Mapping[str, Entry | None]
    output: str = ""
    digest: str = ""


_SIDES = st.builds(Side, st.dictionaries(st.sampled_from(_PATHS), _ENTRIES), _OUTPUTS)
_STARTS = st.fixed_dictionaries(dict.fromkeys(_PATHS, _ENTRIES))


def _states(
    start: Mapping[str, Entry | None], agent: Side, gold: Side
) -> tuple[BashState, BashState]:
    """Make the states as an environment does: each knows every path that any side touched."""
    touched = {*agent.writes, *gold.writes}

    def state(side: Side) -> BashState:
        now = {**start, **side.writes}
        return BashState(
            side.output,
            side.digest,
            {path: now.get(path) for path in touched},
            {path: start.get(path) for path in side.writes},
            frozenset(side.writes),
        )

    return state(agent), state(gold)


def _value(
    agent: Side,
    gold: Side,
    options: RewardOptions = _DEFAULTS,
    start: Mapping[str, Entry | None] | None = None,
) -> float:
    return bash_strict_reward(*_states(start or {}, agent, gold), options, "/work").value


def _effects(start: Mapping[str, Entry | None], side: Side) -> dict[str, Entry | None]:
    return {path: now for path, now in side.writes.items() if start.get(path) != now}


# -- properties


@given(_STARTS, _SIDES, _SIDES)
def test_one_exactly_when_all_is_equal(
    start: dict[str, Entry | None], agent: Side, gold: Side
) -> None:
    mine, theirs = _effects(start, agent), _effects(start, gold)
    reward = bash_strict_reward(*_states(start, agent, gold), RewardOptions(output="always"))
    assert (reward.value == 1.0) == (mine == theirs and agent.output == gold.output)
    assert 0.0 <= reward.value <= 1.0
    assert reward.value == 1.0 or reward.value <= 0.99
    assert bool(reward.reason) == (reward.value < 1.0)


@given(_STARTS, _SIDES, _SIDES)
def test_when_gold_prints(start: dict[str, Entry | None], agent: Side, gold: Side) -> None:
    mine, theirs = _effects(start, agent), _effects(start, gold)
    counts = gold.output != "" or not theirs
    expected = mine == theirs and (agent.output == gold.output or not counts)
    assert (_value(agent, gold, start=start) == 1.0) == expected


@given(_STARTS, _SIDES, _SIDES)
def test_never_looks_at_the_output_of_what_changes_something(
    start: dict[str, Entry | None], agent: Side, gold: Side
) -> None:
    assume(_effects(start, gold))
    options = RewardOptions(output="never")
    assert _value(agent, gold, options, start) == _value(
        replace(agent, output="other"), replace(gold, output="output"), options, start
    )


@given(_STARTS, _SIDES, _OPTIONS)
@example({}, Side({}, "a"), RewardOptions(output="never"))
@example({}, Side({}, "\n"), RewardOptions("always", (Normaliser("trailing-space"),)))
@example({}, Side({}, "a"), RewardOptions("always", (Normaliser("pattern", "a"),)))
def test_nothing_done_earns_exactly_nothing(
    start: dict[str, Entry | None], gold: Side, options: RewardOptions
) -> None:
    assume(gold.output or _effects(start, gold))
    assert _value(Side({}), gold, options, start) == 0.0


@given(_STARTS, _SIDES, _OPTIONS)
def test_gold_against_itself_is_solved(
    start: dict[str, Entry | None], gold: Side, options: RewardOptions
) -> None:
    assert _value(gold, gold, options, start) == 1.0


@given(_STARTS, _SIDES, _SIDES)
def test_sides_may_be_exchanged(start: dict[str, Entry | None], agent: Side, gold: Side) -> None:
    options = RewardOptions(output="always")
    one = bash_strict_reward(*_states(start, agent, gold), options)
    two = bash_strict_reward(*_states(start, gold, agent), options)
    assert one.parts == two.parts
    assert (one.value == 1.0) == (two.value == 1.0)


@given(_STARTS, _SIDES, _SIDES, _OPTIONS)
def test_touching_without_changing_is_no_effect(
    start: dict[str, Entry | None], agent: Side, gold: Side, options: RewardOptions
) -> None:
    def without_touches(side: Side) -> Side:
        return replace(side, writes=_effects(start, side))

    found = bash_strict_reward(*_states(start, agent, gold), options)
    bare = bash_strict_reward(
        *_states(start, without_touches(agent), without_touches(gold)), options
    )
    assert found.parts.get("files") == bare.parts.get("files")
    assert (found.value == 1.0) == (bare.value == 1.0)


@given(_STARTS, _SIDES, _SIDES, _OPTIONS)
def test_reason_never_names_what_only_gold_touched(
    start: dict[str, Entry | None], agent: Side, gold: Side, options: RewardOptions
) -> None:
    reason = bash_strict_reward(*_states(start, agent, gold), options).reason
    words = reason.replace(",", " ").split()
    assert not (set(gold.writes) - set(agent.writes)) & set(words)
    assert len(reason.splitlines()) <= 1


# -- files


def test_partial_share_of_effects() -> None:
    gold = Side({"/a": _FILE, "/b": _FILE})
    assert _value(Side({"/a": _FILE}), gold) == 0.5
    assert _value(Side({"/a": _FILE, "/b": _OTHER}), gold) == 0.5
    assert _value(Side({"/a": _FILE, "/b": _FILE, "/d": _FILE}), gold) == pytest.approx(2 / 3)
    assert _value(Side({"/d": _FILE}), gold) == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        replace(_FILE, type="d"),
        replace(_FILE, mode=0o755),
        replace(_FILE, uid=1),
        replace(_FILE, gid=1),
        replace(_FILE, content="bb"),
        None,
    ],
)
def test_every_field_of_an_entry_counts(wrong: Entry | None) -> None:
    assert _value(Side({"/a": wrong}), Side({"/a": _FILE})) == 0.0


def test_what_both_wrote_counts_where_its_start_is_not_known() -> None:
    agent, gold = _states({"/a": _FILE}, Side({"/a": _FILE}), Side({"/a": _OTHER}))
    agent, gold = replace(agent, before={}), replace(gold, before={})
    assert bash_strict_reward(agent, gold, RewardOptions()).value == 0.0
    assert bash_strict_reward(gold, gold, RewardOptions()).parts == {"files": 1.0}


def test_three_hundred_of_three_hundred_and_one_do_not_round_to_one() -> None:
    gold = Side({f"/{n}": _FILE for n in range(1000)})
    agent = Side({f"/{n}": _FILE for n in range(999)})
    assert _value(agent, gold) == 0.99
    lines = [str(n) for n in range(1000)]
    assert _value(Side({}, "\n".join(lines[:-1])), Side({}, "\n".join(lines))) == 0.99


@pytest.mark.parametrize(
    ("scratch", "path", "allowed"),
    [
        ((), "/tmp/t", False),
        (("/tmp",), "/tmp/t", True),
        (("/tmp",), "/tmp", True),
        (("/tmp/",), "/tmp/t", True),
        (("/tmp",), "/tmpfile", False),
        (("cache",), "/work/cache/x", True),
        (("./cache",), "/work/cache/x", True),
        (("../var",), "/var/x", True),
        (("cache",), "/cache/x", False),
        (("/",), "/anything", True),
        (("/a", "/b"), "/b/c", True),
    ],
)
def test_scratch(scratch: tuple[str, ...], path: str, allowed: bool) -> None:
    gold = Side({"/work/out": _FILE})
    agent = Side({"/work/out": _FILE, path: _FILE})
    value = _value(agent, gold, RewardOptions(scratch=scratch))
    assert value == (1.0 if allowed else 0.5)


def test_scratch_that_gold_writes_counts() -> None:
    options = RewardOptions(scratch=("/tmp",))
    gold = Side({"/tmp/t": _FILE})
    assert _value(Side({}), gold, options) == 0.0
    assert _value(Side({"/tmp/t": _OTHER}), gold, options) == 0.0
    assert _value(Side({"/tmp/t": _FILE, "/tmp/u": _FILE}), gold, options) == 1.0


# -- outputs


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ("a\nb\n", "a\nb\n", 1.0),
        ("a\nb\n", "a\nb", 0.99),
        ("b\na\n", "a\nb\n", 0.99),
        ("a\n", "a\nb\n", 0.5),
        ("a\nb\nc\n", "a\nb\n", 2 / 3),
        ("a\na\n", "a\n", 0.5),
        ("x\n", "a\n", 0.0),
        ("", "a\n", 0.0),
        ("\n", "a\n", 0.0),
        ("\n\n", "a\n\nb\n", 0.0),
        ("", "\n", 0.0),
        ("x", "", 0.0),
    ],
)
def test_share_of_lines(mine: str, theirs: str, expected: float) -> None:
    reward = bash_strict_reward(*_states({}, Side({}, mine), Side({}, theirs)), RewardOptions())
    assert reward.parts == {"output": pytest.approx(expected)}
    assert reward.value == pytest.approx(expected)


def test_value_is_the_mean_of_what_counts() -> None:
    gold = Side({"/a": _FILE, "/b": _FILE}, "one\ntwo\n")
    reward = bash_strict_reward(*_states({}, Side({"/a": _FILE}, "one\n"), gold), RewardOptions())
    assert reward.parts == {"output": 0.5, "files": 0.5}
    assert reward.value == 0.5
    assert _value(Side({"/a": _FILE}, "one\ntwo\n"), gold) == 0.75


def test_truncated_outputs_are_compared_by_digest() -> None:
    kept = "head ... tail"
    gold = Side({}, kept, "d1")
    assert _value(Side({}, kept, "d1"), gold) == 1.0
    assert _value(Side({}, kept, "d2"), gold) == 0.0
    assert _value(Side({}, kept), gold) == 0.0
    assert _value(gold, Side({}, kept)) == 0.0
    assert _value(Side({}), gold) == 0.0


def _outputs(mine: str, theirs: str, *normalisers: Normaliser) -> float:
    return _value(Side({}, mine), Side({}, theirs), RewardOptions("always", normalisers))


_SPACE, _ORDER, _NUMBERS = map(Normaliser, ("trailing-space", "line-order", "numbers"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mine", "theirs", "same"),
    [
        ("a \nb\t\r\n", "a\nb\n", True),
        ("a", "a\n", True),
        ("a\n\n\n", "a\n", True),
        (" a\n", "a\n", False),
        ("a\n\nb\n", "a\nb\n", False),
        ("a  b\n", "a b\n", False),
        ("", "\n", False),
        ("", " \n", False),
    ],
)
def test_trailing_space(mine: str, theirs: str, same: bool) -> None:
    assert (_outputs(mine, theirs, _SPACE) == 1.0) == same


@pytest.mark.parametrize(
    ("mine", "theirs", "same"),
    [
        ("b\na\n", "a\nb\n", True),
        ("b\na", "a\nb\n", True),
        ("b\na\na\n", "a\nb\n", False),
        ("ab\n", "ba\n", False),
        ("\na\n", "a\n\n", True),
        ("", "\n", False),
    ],
)
def test_line_order(mine: str, theirs: str, same: bool) -> None:
    assert (_outputs(mine, theirs, _ORDER) == 1.0) == same


@pytest.mark.parametrize(
    ("mine", "theirs", "same"),
    [
        ("3", "3.0", True),
        ("3", "3e0", True),
        ("3.0", "3e0", True),
        ("+3", "3", True),
        ("3.", "3", True),
        (".5", "0.50", True),
        ("1200", "1.2E3", True),
        ("-0.0", "0", True),
        ("0.00", "0e7", True),
        ("n=3,m=4.0", "n=3.00,m=4", True),
        ("(3)", "(3.0)", True),
        ("3", "-3", False),
        ("3", "3.01", False),
        ("v3.0", "v3", False),
        ("1.2.30", "1.2.3", False),
        ("3.0kg", "3kg", False),
        ("9" * 40, "9" * 39 + "8", False),
        ("0." + "9" * 40, "0." + "9" * 39 + "8", False),
        ("1e9999999", "1e9999999", True),
        ("1e9999999", "2e9999999", False),
        ("1e99999999999999999999", "2e99999999999999999999", False),
    ],
)
def test_numbers(mine: str, theirs: str, same: bool) -> None:
    assert (_outputs(mine, theirs, _NUMBERS) == 1.0) == same
    assert (_outputs(theirs, mine, _NUMBERS) == 1.0) == same


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4), st.integers(0, 3))
def test_numbers_are_one_however_they_are_written(number: object, zeros: int) -> None:
    text = f"{number}" + "0" * zeros
    other = f"{number:e}"
    assert normalise(text, [_NUMBERS]) == normalise(other, [_NUMBERS])


@pytest.mark.parametrize(
    "text", ["1" * 65536 + "x", "1" + "0" * 65536, "1." * 32768, "1e" * 32768, "-1" * 32768]
)
def test_numbers_take_no_time_whatever_the_agent_prints(text: str) -> None:
    began = time.process_time()
    normalise(text, [_NUMBERS])
    assert time.process_time() - began < 2


def test_pattern() -> None:
    times = Normaliser("pattern", r"\d\d:\d\d", "HH:MM")
    assert _outputs("at 10:15 ok\n", "at 09:59 ok\n", times) == 1.0
    assert _outputs("at 10:15 no\n", "at 09:59 ok\n", times) < 1.0
    anchored = Normaliser("pattern", r"^#.*\n", "")
    assert _outputs("# mine\na\n", "a\n# theirs\n", anchored) == 1.0
    assert _outputs("b a", "a b", Normaliser("pattern", r"b a", "a b")) == 1.0


def test_normalisers_apply_in_their_order() -> None:
    assert normalise("b 2.0 \na\n", [_SPACE, _ORDER]) == "a\nb 2.0\n"
    assert normalise("b 2.0 \na\n", [_NUMBERS, _SPACE]) == "b 2\na"
    first, second = Normaliser("pattern", "a", "b"), Normaliser("pattern", "b", "c")
    assert normalise("ab", [first, second]) == "cc"
    assert normalise("ab", [second, first]) == "bc"


@pytest.mark.parametrize("normaliser", _NORMALISERS)
@pytest.mark.parametrize("gold", ["a", "aaa\n", "\n", " ", "a\n\nb\n"])
def test_normalisers_do_not_let_an_empty_output_pass(normaliser: Normaliser, gold: str) -> None:
    assert _outputs("", gold, normaliser) == 0.0


@pytest.mark.parametrize("mine", [" ", "\n", "junk\n"])
def test_normalisers_that_erase_all_of_gold_are_not_applied(mine: str) -> None:
    everything = Normaliser("pattern", "(?s).+", "")
    assert _outputs(mine, "a\n", everything) == 0.0
    assert _outputs("a\n", "a\n", everything) == 1.0


@pytest.mark.parametrize("normaliser", [_SPACE, _ORDER, _NUMBERS])
@given(text=_OUTPUTS)
def test_normalising_twice_changes_nothing(normaliser: Normaliser, text: str) -> None:
    once = normalise(text, [normaliser])
    assert normalise(once, [normaliser]) == once


# -- what is said


@pytest.mark.parametrize(
    ("agent", "gold", "reason"),
    [
        (Side({}), Side({"/a": _FILE}), "1 of 1 changes on disk differ from gold's"),
        (
            Side({"/a": _OTHER}),
            Side({"/a": _FILE, "/b": _FILE}),
            "2 of 2 changes on disk differ from gold's, /a among them",
        ),
        (Side({}, "x"), Side({}, "y"), "the output is not gold's"),
        (
            Side({"/d": _FILE}, "x"),
            Side({}, "y"),
            "1 of 1 changes on disk differ from gold's, /d among them and the output is not gold's",
        ),
        (Side({"/a": _FILE}, "y"), Side({"/a": _FILE}, "y"), ""),
    ],
)
def test_reason(agent: Side, gold: Side, reason: str) -> None:
    assert bash_strict_reward(*_states({}, agent, gold), RewardOptions()).reason == reason
