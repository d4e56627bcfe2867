"""What a Dockerfile says of the images that it needs and of its context, as text alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.core.dockerfile import (
    base_names,
    find_images,
    read_instructions,
    reads_context,
    replace_bases,
    write_platforms,
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "FROM a AS x\nFROM --platform=p b:1 as y\nFROM x\nFROM scratch\nFROM c:$V\nFROM a",
            "a b:1",
        ),
        ("from a\nRUN echo FROM no\n# FROM no", "a"),
        ("ARG V=1\nARG N=r/c\nFROM ${N}:$V\nFROM c:${W:-2}", "r/c:1 c:2"),
        ("FROM a\nARG V=b\nFROM $V", "a"),  # an argument of a stage is not known to FROM
        ('ARG B="a:1"\nFROM "$B"', "a:1"),
        (
            "FROM a\nCOPY --from=ghcr.io/u/v:1 --chown=1:1 /v /w\nADD --from=c /x /y",
            "a ghcr.io/u/v:1 c",
        ),
        ("FROM a AS Make\nFROM b\nCOPY --from=make /x /y\nCOPY --from=0 /x /y", "a b"),
        ("FROM a\nCOPY --chmod=755 \\\n # no\n\n  --from=b \\\n /x /y", "a b"),
        ("FROM a\nRUN --mount=type=bind,from=b,source=/x,target=/y cp /y /z", "a b"),
        ("FROM a AS s\nRUN --mount=from=s,target=/y --mount=type=cache,from=c,target=/d x", "a c"),
        ("FROM a\nRUN --mount=target=/y,from=0 x\nRUN echo --mount=from=no", "a"),
        ("FROM a\nONBUILD COPY --from=b /x /y", "a b"),
        (
            "# syntax=docker/dockerfile:1\n# escape=`\nFROM `\n a\nRUN dir C:\\\nCOPY --from=b x y",
            "a b",
        ),
        ("FROM a\nRUN x \\\\\nCOPY --from=b x y", "a b"),
        ("FROM a\nRUN <<EOT bash\nCOPY --from=no /x /y\nEOT\nCOPY --from=b /x /y", "a b"),
        ("FROM a\nCOPY <<-'X' <<\"Y\" /d/\n\tFROM no\n\tX\nFROM no\nY\nFROM b", "a b"),
        ("FROM a\nRUN cat <<NEVER\nCOPY --from=b /x /y", "a b"),
        ("FROM a\nRUN echo '<<EOT'\nCOPY --from=b x y\nEOT", "a b"),
        ("\ufeffFROM a", "a"),
        ("FROM a\r\nCOPY --from=b x \\\r\n y\r\n", "a b"),
    ],
)
def test_the_images_that_a_dockerfile_needs(text: str, names: str) -> None:
    assert base_names(text) == names.split()


def test_names_are_replaced_where_they_stand() -> None:
    text = (
        "ARG BASE=b:1\nARG V=2\nFROM b:1 AS one\nFROM --platform=p $BASE AS two\nFROM c:${V}\n"
        "COPY --from=b:1 /b:1 /x\nCOPY --from=one /x /y\nCOPY --from=b:\\\n1 /x /y\n"
        "RUN --mount=type=bind,from=b:1,target=/b:1 echo b:1 # b:1\n"
    )
    rebased, arguments, needed = replace_bases(text, {"b:1": "mirror/b", "c:2": "d", "one": "no"})
    assert rebased == (
        "ARG BASE=b:1\nARG V=2\nFROM mirror/b AS one\nFROM --platform=p $BASE AS two\nFROM d\n"
        "COPY --from=mirror/b /b:1 /x\nCOPY --from=one /x /y\nCOPY --from=mirror/b /x /y\n"
        "RUN --mount=type=bind,from=mirror/b,target=/b:1 echo b:1 # b:1\n"
    )
    assert arguments == {"BASE": "mirror/b"}
    assert needed == [("mirror/b", "b:1"), ("d", "c:2")]
    assert replace_bases(text, {})[0] == text


def test_a_stage_says_its_platform() -> None:
    text = (
        "ARG P=linux/386\nFROM --platform=$P a AS one\nFROM b\nCOPY --from=one /x /y\n"
        "FROM --platform=$UNKNOWN c\nFROM --platform=linux/arm64 b\n"
    )
    platforms = [(image.name, image.platform) for image in find_images(text)]
    assert platforms == [("a", "linux/386"), ("b", ""), ("c", ""), ("b", "linux/arm64")]
    rebased, _, needed = replace_bases(text, {"b": "d"}, lambda name, said: f"{name}.{said[-2:]}")
    assert rebased == (
        "ARG P=linux/386\nFROM --platform=$P a.86 AS one\nFROM d.\nCOPY --from=one /x /y\n"
        "FROM --platform=$UNKNOWN c.\nFROM --platform=linux/arm64 d.64\n"
    )
    assert needed == [("a.86", "a"), ("d.", "b"), ("c.", "c"), ("d.64", "b")]


def test_platforms_that_only_newer_builders_know_are_written_down() -> None:
    text = (
        "FROM --platform=$BUILDPLATFORM a AS b\nFROM --platform=${TARGETPLATFORM} c\n"
        "FROM --platform=linux/386 d\nRUN echo --platform=$BUILDPLATFORM\n"
    )
    assert write_platforms(text, "linux/arm64", "linux/amd64") == (
        "FROM --platform=linux/arm64 a AS b\nFROM --platform=linux/amd64 c\n"
        "FROM --platform=linux/386 d\nRUN echo --platform=$BUILDPLATFORM\n"
    )


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("FROM a\nRUN x\nENV COPY=.\nRUN COPY . /x", False),
        ("FROM a AS b\nFROM c\nCOPY --from=b --chown=1 /x /y", False),
        ("FROM a\nCOPY . /x", True),
        ("FROM a\ncopy --chown=1 . /x", True),
        ("FROM a\nADD http://example.org /x", True),
        ("FROM a\nCOPY . /--from=b", True),
        ("FROM a\nONBUILD COPY . /x", True),
        ("FROM a\nRUN --mount=type=cache,target=/c --mount=type=secret,id=s x", False),
        ("FROM a\nRUN --mount=target=/c x", True),
        ("FROM a\nRUN --mount=type=bind,target=/c x", True),
        ("FROM a\nRUN --mount=type=bind,from=b,target=/c x", False),
        ("FROM a\nRUN x <<EOT\nCOPY . /x\nEOT", False),
        ("FROM a\nRUN x <<EOT\nCOPY . /x\nEOF", True),
        ("FROM a\nRUN x \\\nCOPY . /x", False),
        ("FROM a\nRUN x \\\\\nCOPY . /x", True),
        ("# escape=`\nFROM a\nRUN x \\\nCOPY . /x", True),
        ("FROM a\nCOPY", True),
    ],
)
def test_whether_a_build_reads_its_context(text: str, reads: bool) -> None:
    assert reads_context(text) == reads


@given(
    st.text()
    | st.lists(st.sampled_from(["FROM a", "COPY --from=b", "RUN", "\\", "\n", " ", "<<X"])).map(
        "".join
    )
)
def test_any_text_is_a_dockerfile(text: str) -> None:
    for instruction in read_instructions(text):
        assert len(instruction.rest) == len(instruction.places)
        shown = text.replace("\ufeff", " ", 1) if text.startswith("\ufeff") else text
        assert instruction.rest == "".join(shown[place] for place in instruction.places)
    for image in find_images(text):
        assert image.name
        assert 0 <= image.span[0] < image.span[1] <= len(text)
    assert replace_bases(text, {})[0] == text
    reads_context(text)
