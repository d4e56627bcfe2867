"""Similarity of two texts by TF-IDF, as scikit-learn's ``TfidfVectorizer`` computes it.

The vectoriser is the one of scikit-learn with its defaults, fitted on just the two texts: lower
case, words of at least two characters, raw counts, smooth inverse document frequency
``ln((1 + n) / (1 + df)) + 1``, vectors scaled to unit length. A property test holds it against
scikit-learn; ours needs no numpy and is a thousand times smaller to import.
"""

from __future__ import annotations

import math
import re
from collections import Counter

__all__ = ["tfidf_similarity"]

_WORD = re.compile(r"(?u)\b\w\w+\b")


def tfidf_similarity(first: str, second: str) -> float | None:
    """Return the cosine of the two texts' TF-IDF vectors, in [0, 1].

    Returns:
        None when neither text holds a word, where no vectors can be made.
    """
    counts = [Counter(_WORD.findall(text.lower())) for text in (first, second)]
    words = set(counts[0]) | set(counts[1])
    if not words:
        return None
    weight = {word: math.log(3 / (1 + sum(word in c for c in counts))) + 1 for word in words}
    norms = [math.sqrt(sum((n * weight[w]) ** 2 for w, n in c.items())) for c in counts]
    if not all(norms):
        return 0.0
    shared = set(counts[0]) & set(counts[1])
    cosine = sum(
        (counts[0][w] * weight[w] / norms[0]) * (counts[1][w] * weight[w] / norms[1])
        for w in shared
    )
    return min(cosine, 1.0)
