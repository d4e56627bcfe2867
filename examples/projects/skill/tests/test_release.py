"""The skill for releases: an agent reads it, and drafts a release instead of publishing one."""

from __future__ import annotations

from pytest_intercode import Fake, Project

GH = Fake({"release create *": "https://github.com/acme/shop/releases/tag/untagged-1"})


def test_drafts_a_release(intercode_project: Project) -> None:
    run = intercode_project.run("Release version 1.5.0.", fake={"gh": GH})
    assert run.loaded_skill("release")
    assert run.ran("gh release create v1.5.0 --draft")
    assert not run.ran("gh release edit")
    assert run.read("VERSION") == "1.5.0\n"
    assert [commit.subject for commit in run.commits] == ["Release 1.5.0"]
