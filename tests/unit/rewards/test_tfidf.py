"""Our TF-IDF similarity against scikit-learn's."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_intercode.rewards.bash_paper import tfidf_similarity

# Few letters, so that documents share words; and what decides where a word ends.
_CHARACTERS = st.one_of(
    st.sampled_from("ab aB 01_ \t\n.,-/é'"),
    st.sampled_from("ÀßİıſΣςÅα日本語٣²½\u0301\u200d\u00a0\u2028😀"),
    st.characters(),
)
_WORDS = st.sampled_from(["a", "ab", "AB", "file", "file_1", "42", "_", "__", "ünï", "x", "total"])
_DOCUMENTS = st.one_of(st.text(_CHARACTERS, max_size=40), st.lists(_WORDS).map(" ".join))


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Import scikit-learn, which takes seconds, outside of a test's time and of the collection."""
    import sklearn.feature_extraction.text  # type: ignore[import-untyped]
    import sklearn.metrics.pairwise  # type: ignore[import-untyped]  # noqa: F401


def _reference(first: str, second: str) -> float | None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics.pairwise import cosine_similarity

    try:
        vectors = TfidfVectorizer().fit_transform([first, second])
    except ValueError as error:
        if "empty vocabulary" in str(error):
            return None
        raise
    return float(cosine_similarity(vectors)[0, 1])


@given(_DOCUMENTS, _DOCUMENTS)
@settings(max_examples=300, deadline=None)
@example("", "")
@example("a b c", "1 2 3")
@example("", "word")
@example("a", "word")
@example("total 4", "total 8")
@example("the same words", "the same words")
@example("under_score", "under score")
@example("İstanbul", "i̇stanbul")
def test_equals_scikit_learn(first: str, second: str) -> None:
    expected = _reference(first, second)
    found = tfidf_similarity(first, second)
    if expected is None:
        assert found is None
    else:
        assert found == pytest.approx(expected, abs=1e-9)


@given(_DOCUMENTS, _DOCUMENTS)
@settings(deadline=None)
def test_is_symmetric_and_in_range(first: str, second: str) -> None:
    found = tfidf_similarity(first, second)
    assert found == pytest.approx(tfidf_similarity(second, first))
    assert found is None or 0.0 <= found <= 1.0


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("", "", None),
        ("a b", "- ?", None),
        ("word", "", 0.0),
        ("one two", "three four", 0.0),
        ("total 4", "total 8", 1.0),  # one-letter words do not count: a defect of the metric
        ("ls -la", "LS -LA", 1.0),
    ],
)
def test_examples(first: str, second: str, expected: float | None) -> None:
    assert tfidf_similarity(first, second) == (
        None if expected is None else pytest.approx(expected, abs=1e-12)
    )


def test_weights_by_hand() -> None:
    # Shared word: idf 1. Own word: ln(3/2) + 1.
    own = 1.4054651081081644
    assert tfidf_similarity("aa bb", "aa cc") == pytest.approx(1 / (1 + own**2))
