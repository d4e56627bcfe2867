"""Which programs may be faked or watched, and what a sandbox gets for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.projects.fakes import Fake
from pytest_intercode.projects.shim_programs import FakeLike, ShimPrograms
from pytest_intercode.projects.shims import Shims


def test_the_files_of_a_sandbox(tmp_path: Path) -> None:
    (tmp_path / "fake_uv").write_text("#!/bin/sh\necho 1\n")
    fakes: dict[str, FakeLike] = {
        **{"gh": Fake({"x": "y"}), "psql": Fake(reads_input=True)},
        "uv": "fake_uv",
    }
    files = dict(ShimPrograms.read(fakes, ["pip"], tmp_path, ()).files())
    assert sorted(files) == ["bin/gh", "bin/pip", "bin/psql", "bin/uv", "check", "scripts/uv"]
    assert files["scripts/uv"] == b"#!/bin/sh\necho 1\n"
    for name, words in {
        "gh": b"('fake', 'gh', 'words')",
        "psql": b"('fake', 'psql', 'always')",
        "uv": b"('script', 'uv', 'never')",
        "pip": b"('watch', 'pip', 'never')",
    }.items():
        assert words in files[f"bin/{name}"]
        assert files[f"bin/{name}"].startswith(b"#!/usr/bin/perl\n")


def test_without_programs_a_sandbox_gets_nothing() -> None:
    shims = Shims()
    assert (shims.readonly, shims.variables, shims.calls) == ((), (), [])
    shims.close()


def test_sandboxes_with_the_same_programs_are_the_same() -> None:
    first, second = (Shims({"gh": Fake({"x": text})}, ["pip"]) for text in "ab")
    assert first.readonly == second.readonly
    assert first.variables == second.variables
    assert first.readonly != Shims({"gh": Fake()}).readonly


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fakes": {"/usr/bin/gh": Fake()}}, "fake=: '/usr/bin/gh' is not the name of a program"),
        ({"fakes": {"": Fake()}}, "fake=: '' is not the name of a program"),
        ({"fakes": {"..": Fake()}}, "fake=: '..' is not the name of a program"),
        ({"fakes": {"a'b": Fake()}}, "is not the name of a program"),
        ({"watch": ["-x"]}, "watch=: '-x' is not the name of a program"),
        ({"watch": "pip"}, "watch='pip': give a list of programs"),
        ({"watch": 3}, "watch=3: give a list of programs"),
        ({"fakes": ["gh"]}, "fake=['gh']: give a mapping, such as {'gh': Fake({...})}"),
        ({"watch": ["pip", "git", "pip"]}, "watch=: pip is given twice; leave one out"),
        ({"fakes": {"gh": Fake()}, "watch": ["gh"]}, "watch=: gh is also in fake=; leave one out"),
        *(
            ({"fakes": {name: Fake()}}, f"fake=: {name} is a program that the agent itself needs")
            for name in ("node", "perl", "sh", "bash", "codex")
        ),
        ({"watch": ["codex"]}, "watch=: codex is a program that the agent itself needs"),
        ({"fakes": {"gh": "missing.py"}}, "missing.py' for gh; for answers, give Fake({...})"),
        ({"fakes": {"gh": "."}}, "fake=: there is no script"),
        ({"fakes": {"gh": "a\0b"}}, "fake=: there is no script"),
        ({"fakes": {"gh": {"a": "b"}}}, "fake=: gh is {'a': 'b'}; give a Fake({...}) or the path"),
        (
            {"fakes": {"gh": "plain.py"}},
            "has to name its interpreter, as in #!/usr/bin/env python3",
        ),
    ],
)
def test_a_mistake_is_one_line(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print(1)\n")
    with pytest.raises(ConfigurationError) as caught:
        Shims(**arguments, folder=tmp_path, agent_programs=["codex"])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
