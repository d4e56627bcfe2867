"""Text of any characters as a space, and what Gymnasium does with such a space."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import pytest
from gymnasium.spaces import Text, Tuple, flatdim, flatten, flatten_space, unflatten
from gymnasium.vector.utils import (
    batch_space,
    create_empty_array,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.gym.text import UnicodeText, clipped

ANY = st.text(st.characters(), max_size=20)  # lone surrogates and control characters too
HARD = "caf\u00e9 \x00\x1b[31m\r\n\U0001f600\udcff\U0010ffff"


def test_holds_any_text_up_to_its_length() -> None:
    space = UnicodeText(len(HARD))
    assert HARD in space
    assert "" in space
    assert HARD + "x" not in space
    assert b"bytes" not in space
    assert None not in space
    assert repr(space) == f"UnicodeText({len(HARD)})"


@given(ANY)
def test_text_survives_flattening(text: str) -> None:
    space = UnicodeText(20)
    flat = flatten(space, text)
    assert flat in flatten_space(space)
    assert len(flat) == flatdim(space) == 20
    assert unflatten(space, flat) == text


def test_text_survives_shared_memory() -> None:
    space = UnicodeText(40)
    context: Any = multiprocessing.get_context()
    shared = create_shared_memory(space, n=2, ctx=context)
    write: Any = write_to_shared_memory
    texts: Any = read_from_shared_memory(space, shared, n=2)
    assert (len(texts), repr(texts)) == (2, "('', '')")
    write(space, 1, "x" * 40, shared)
    before = copy.deepcopy(texts)
    write(space, 1, HARD, shared)
    assert before == ("", "x" * 40)  # a copy is of its moment, a view of the present
    assert tuple(texts) == texts[:] == ("", HARD)
    assert texts[-1] == HARD


def test_samples_are_short_plain_and_seeded() -> None:
    space = UnicodeText(1000, seed=1)
    samples = [space.sample() for _ in range(200)]
    assert all(sample in space and len(sample) <= 40 for sample in samples)
    assert {c for sample in samples for c in sample if not c.isalnum()} == {" "}
    assert samples == [again.sample() for again in [UnicodeText(1000, seed=1)] for _ in range(200)]
    assert samples != [again.sample() for again in [UnicodeText(1000, seed=2)] for _ in range(200)]
    assert all(len(UnicodeText(2, seed=s).sample()) <= 2 for s in range(20))
    with pytest.raises(ValueError, match="without a mask"):
        space.sample(mask=(3, None))


def test_spaces_are_equal_by_length() -> None:
    assert UnicodeText(5) == UnicodeText(5)
    assert UnicodeText(5) != UnicodeText(6)
    assert UnicodeText(5) != Text(5)
    for copied in (copy.deepcopy(UnicodeText(5)), pickle.loads(pickle.dumps(UnicodeText(5)))):
        assert copied == UnicodeText(5)
        assert HARD[:5] in copied


def test_batches() -> None:
    batch = batch_space(UnicodeText(30), 3)
    assert isinstance(batch, Tuple)
    assert batch.sample() in batch
    assert create_empty_array(UnicodeText(30), 2) == ("", "")


@given(st.text(max_size=300), st.integers(0, 200))
def test_clipped(text: str, length: int) -> None:
    short = clipped(text, length)
    assert len(short) <= length or short == text
    if len(text) <= length:
        assert short == text


def test_clipping_is_visible() -> None:
    short = clipped("a" * 500 + "b" * 500, 200)
    assert len(short) == 200
    assert short.startswith("aaa")
    assert short.endswith("bbb")
    assert "[... 1000 characters, the middle is left out ...]" in short
