"""What in a file may be an agent, by its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_intercode.agents.candidates import find_candidates, suggest_agent


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class A:\n  def act(self, o): ...", ["A"]),
        ("class A:\n  async def run(self, t, e): ...", ["A"]),
        ("class A:\n  def act(self, o): ...\nclass B(A): ...\nclass C(B): ...", ["A", "B", "C"]),
        ("class _A:\n  def act(self, o): ...\nclass B(_A): ...", ["B"]),
        ("class A(B): ...\nclass B(A): ...", []),
        ("class A: ...\nclass B(object): ...", []),
        ("class A(framework.Base): ...", ["A"]),
        ("class A(framework.Base): ...\ndef f(o): ...", ["f"]),
        ("def f(o): ...\nasync def g(t, e): ...\ndef h(a, b, c): ...\ndef main(): ...", ["f", "g"]),
        ("def f(o, more=1): ...\ndef g(o, *, needed): ...\ndef h(o, *, more=1): ...", ["f", "h"]),
        ("import nothing_of_this_name\n1 / 0\ndef f(o): ...", ["f"]),
        ("if True:\n  class A:\n    def act(self, o): ...", []),
    ],
)
def test_what_fits(source: str, found: list[str]) -> None:
    assert find_candidates(source.encode()) == found


def test_what_is_said(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("def f(o): ...")
    (tmp_path / "null.py").write_bytes(b"x = '\0'")
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "two.py").write_text("def f(o): ...\ndef g(o): ...")
    assert suggest_agent("one.py", tmp_path) == "name the class or function, too: one.py:f"
    assert suggest_agent(str(tmp_path / "one.py"), Path("/")).endswith(f"{tmp_path}/one.py:f")
    assert suggest_agent("package.two", tmp_path).endswith("too: package.two:f or package.two:g")
    assert suggest_agent("null.py", tmp_path).startswith(str(tmp_path / "null.py"))
    assert suggest_agent("nothing", tmp_path) == ""
    assert suggest_agent("nothing.py", tmp_path) == f"there is no file {tmp_path}/nothing.py"
