"""Decide which parts of an end state a verifier gets.

A verdict depends on programs: shells, interpreters, test runners, and the files that they load on
their own. No list of these can be complete, so the rule is the reverse. An agent's changes are
carried where work is done (the working directory, the repository, home folders without their
settings, and places for data) and where the task declares it. Files that programs load, wherever
they are, are carried only if gold changes them, too: if a task is solved by installing a package,
its gold shows that.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from pytest_intercode.core.task import Task
from pytest_intercode.environments.swe.fields import repository_of
from pytest_intercode.environments.swe.gold import is_patch, paths_of_patch
from pytest_intercode.sandboxes.protocol import Changes, Entry, is_folder

__all__ = ["SURVEY", "Carrying", "GoldPaths", "Programs", "parents", "read_survey", "topmost"]

# Tests and their helpers in a repository. The tests of a whole machine come from outside of it.
_TESTS = re.compile(
    r"(?:.*/)?(?:"
    r"(?:tests?|__tests__|__mocks__|spec|t)/.*"
    r"|(?:test_[^/]*|[^/]*_tests?)\.(?:py|go|c|lua|sh|pl|rb)"
    r"|[^/]*[.-](?:test|spec)\.[cm]?[jt]sx?"
    r"|[^/]*\.(?:t|bats)"
    r")",
    re.DOTALL,
)

# Files that interpreters, shells, build tools and test runners read on their own in a folder that
# they work in, or that they search for packages. Some of them ignore case in these names. If such a
# file is in a folder of a certain name, that name is here as well: it may be a link.
_SETTINGS = re.compile(
    r".*/(?:"
    # Python: settings of runners, packages and their entry points, bytecode.
    r"conftest\.py|pyproject\.toml|\.?pytest\.(?:ini|toml)|tox\.ini|setup\.(?:cfg|py)|noxfile\.py"
    r"|\.coveragerc|(?:site|user)customize\.py|pyvenv\.cfg|[^/]*\.(?:pth|egg-link|py[co])"
    r"|(?:[^/]*\.(?:dist|egg)-info|egg-info|[^/]*\.egg|site-packages|dist-packages)(?:/.*)?"
    r"|twisted(?:/plugins(?:/.*)?)?"
    # JavaScript
    r"|package\.json|\.(?:npm|yarn|mocha|nyc|tap|babel|swc)rc[^/]*|\.pnp\.[^/]*|bunfig\.toml"
    r"|[^/]*\.(?:config|conf|setup)\.(?:[cm]?[jt]sx?|json)|tsconfig[^/]*\.json"
    r"|(?:grunt|gulp|jake)file\.[^/]*|(?:angular|nx|turbo|lerna)\.json|testem\.[cm]?js"
    r"|setuptests\.[jt]sx?|node_modules(?:/.*)?"
    # C, C++ and other builders.
    r"|(?:gnu)?makefile(?:\.[^/]*)?|[^/]*\.(?:mk|mak|m4|cmake|ninja|bazel)|configure(?:\.ac|\.in)?"
    r"|cmakelists\.txt|cmake(?:user)?presets\.json|meson(?:\.build|\.options|_options\.txt)"
    r"|test-driver|ltmain\.sh|install-sh|depcomp|config\.(?:status|guess|sub|cache)"
    r"|scons(?:truct|cript)|wscript|(?-i:BUILD|WORKSPACE)|\.bazelrc|\.?justfile|taskfile\.ya?ml"
    # Java, Rust, Go
    r"|pom\.xml|build\.xml|[^/]*\.(?:gradle|sbt)(?:\.kts)?|gradle\.properties|gradlew|mvnw"
    r"|(?:\.mvn|gradle|\.cargo)(?:/.*)?|junit-platform\.properties|cargo\.toml|build\.rs"
    r"|meta-inf(?:/services(?:/.*)?)?|rust-toolchain(?:\.toml)?|go\.(?:mod|work)|vendor(?:/.*)?"
    r"|[^/]*_test\.go"  # any test file of a package may decide how all of them end (TestMain)
    # Ruby, PHP, Perl, Lua, R, Julia.
    r"|gemfile(?:\.lock)?|rakefile|\.rspec[^/]*|[^/]*\.gemspec|\.bundle(?:/.*)?|composer\.json"
    r"|minitest(?:/[^/]*_plugin\.rb)?|rubygems_plugin\.rb"
    r"|phpunit[^/]*\.xml[^/]*|\.user\.ini|(?:makefile|build)\.pl|\.proverc|\.busted|\.luacov"
    r"|[^/]*\.rockspec|\.rprofile|\.renviron|localpreferences\.toml"
    # .NET, Elixir, Erlang, Haskell, OCaml, Swift, Clojure, Zig
    r"|[^/]*\.(?:[cfv][sb]proj|sln|runsettings|props|targets|cabal|opam)|nuget\.config"
    r"|xunit\.runner\.json"
    r"|mix\.exs|rebar\.config|stack\.yaml|cabal\.project[^/]*|dune(?:-project)?|package\.swift"
    r"|project\.clj|deps\.edn|build\.zig"
    # shells, git, debuggers
    r"|\.(?:bash|z?sh|profile|inputrc|envrc)[^/]*|\.git(?:attributes|modules|config)|\.gdbinit"
    # git: as a link or a file, each of these folders leads to others
    r"|[^/]*\.git(?:/(?:modules|worktrees)(?:/(?!\.\Z)[^/]+)?)?|[^/]*\.git/(?:(?:modules|worktrees)/.*/)?"
    r"(?:config(?:\.worktree)?|commondir|hooks(?:/.*)?|info(?:/(?:attributes|grafts))?)"
    r")",
    re.DOTALL | re.IGNORECASE,
)

# Programs keep their settings in hidden files and folders. Those of git are above.
_HIDDEN = re.compile(r"(.*?/\.(?!(?:git|gitignore|gitkeep|keep)(?:/|\Z))[^/]+)(?:/.*)?", re.DOTALL)

# Files that running programs make, of no use to another machine; neither carried nor reported.
_CACHES = re.compile(
    r".*/(?:__pycache__|\.(?:pytest|mypy|ruff)_cache|\.hypothesis)(?:/.*)?"
    r"|.*/\.(?:bash|python|node_repl|sqlite)_history|.*/\.(?:lesshst|viminfo|wget-hsts)"
    r"|/var/cache/(?:ldconfig|man|debconf)(?:/.*)?",
    re.DOTALL,
)

# Folders of every Linux that hold programs, the files that they load, or their settings.
_SYSTEM = (
    *("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr"),
    *("/opt/verifier-kit", "/var/cache", "/var/lib", "/var/spool/cron"),
)
# A program's data are only useful as a whole: if gold changes some of them, all are carried. Those
# of package managers are excluded, because they hold scripts that the next installation runs.
_DATA = re.compile(r"(/var/lib/(?!(?:apk|apt|dpkg|gems|pacman|python|rpm)/)[^/]+)/.*", re.DOTALL)
_BIN = ("bin", "sbin")
_WORD = re.compile(r"[\w./+@%-]+")
# The folders in a project's folder where tests look for modules and headers.
_SOURCES = ("", "src", "lib", "blib/lib", "include", "inc")
_IMPORTED = (".py", ".pyc", ".so", ".zip")

SURVEY = r"""
say() { printf '%s\0' "$1 $2"; }
shopt -s nullglob
say home "$HOME"
while IFS=: read -r _ _ _ _ _ home _; do say home "$home"; done </etc/passwd
IFS=: read -ra folders <<<"$PATH"
for folder in "${folders[@]}"; do say path "$folder"; done
IFS=: read -ra folders <<<"$LD_LIBRARY_PATH"
for folder in "${folders[@]}"; do say library "$folder"; done
list="$PYTHONPATH:$PERL5LIB:$RUBYLIB:$GEM_HOME:$GEM_PATH:$NODE_PATH:$CLASSPATH:$R_LIBS"
! type -P go >/dev/null || list+=":$(go env GOROOT 2>/dev/null):$(go env GOPATH 2>/dev/null)"
IFS=: read -ra folders <<<"$list"
for folder in "${folders[@]}"; do say search "$folder"; done
for top in /*; do
  case $top in /dev | /proc | /sys) continue ;; esac
  for folder in "$top"/{,*/,*/*/}bin; do [ ! -d "$folder" ] || say prefix "$folder"; done
done
for file in "$workdir"/{,*/,.*/,*/*/}pyvenv.cfg; do [ ! -f "$file" ] || say venv "$file"; done
last=
for python in python3 python /opt/verifier-kit/python/bin/python3; do
  python=$(type -P "$python") && [ ! "$python" -ef "$last" ] || continue
  last=$python
  "$python" -I - <<'END' 2>/dev/null
import os, sys
names = set(getattr(sys, "stdlib_module_names", ()))
for folder in sys.path:
    if os.path.isdir(folder):
        names.update(name.split(".")[0] for name in os.listdir(folder))
        sys.stdout.write(f"search {folder}\0")
sys.stdout.write("".join(f"module {name}\0" for name in names))
END
done
for path in /opt/verifier-kit/sets/*/*; do path=${path##*/}; say module "${path%%.*}"; done
{
  perl -e 'print "$_\0" for grep { $_ ne "." } @INC'
  for lua in lua lua5.1 lua5.2 lua5.3 lua5.4 luajit; do
    "$lua" -e 'for f in package.path:gmatch("(/[^;?]*)/%?") do io.write(f, "\0") end'
  done
  cc -E -v -xc /dev/null 2>&1 >/dev/null | sed -n '/^#include </,/^[^ ]/s/^ //p' | tr '\n' '\0'
} 2>/dev/null | sort -zu | while IFS= read -rd '' folder; do
  find "$folder/" -maxdepth 6 \( -name '*.pm' -o -name '*.lua' -o -name '*.h' \) \
    -printf 'file %P\0' 2>/dev/null
done
:
"""
"""A bash script that lists the programs of a fresh verifier, before an agent's files are there."""


@dataclass(frozen=True)
class Programs:
    """Where the programs of a machine load from, in its first state.

    Attributes:
        folders: folders of programs, or of files that they load.
        homes: home folders of its users.
        modules: top-level names of the modules that its Pythons can import.
        files: modules of Perl and Lua and headers of C, by their paths in the folders that are
            searched for them.
        searched: folders of the work that are searched for modules.
    """

    folders: frozenset[str] = frozenset(_SYSTEM)
    homes: frozenset[str] = frozenset({"/root"})
    modules: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    searched: frozenset[str] = frozenset()


def read_survey(output: bytes, work: Iterable[str]) -> Programs:
    """Parse the output of :data:`SURVEY`.

    Args:
        output: the output.
        work: the folders in which work is done; a ``bin`` does not make them an installation.
    """
    facts: dict[str, set[str]] = {}
    for line in output.decode("utf-8", "surrogateescape").split("\0"):
        kind, _, value = line.partition(" ")
        facts.setdefault(kind, set()).add(value)
    homes = {
        home
        for home in map(posixpath.normpath, filter(None, facts.get("home", ())))
        if home != "/" and not any(_is_within(home, folder) for folder in _SYSTEM)
    }
    work = list(work)
    above_work = {"/", *homes}
    for folder in work:
        above_work.update((folder, *parents(folder)))
    folders = set(_SYSTEM)
    for kind in ("path", "prefix"):
        for folder in map(posixpath.normpath, filter(None, facts.get(kind, ()))):
            prefix, name = posixpath.split(folder)
            whole = name in _BIN and prefix not in above_work
            if whole or (kind == "path" and folder not in above_work):
                folders.add(prefix if whole else folder)
    folders.update(map(posixpath.normpath, filter(None, facts.get("library", ()))))
    folders.update(posixpath.dirname(path) for path in facts.get("venv", ()))
    search = {posixpath.normpath(path) for path in facts.get("search", ()) if path[:1] == "/"}
    # A folder of the work that an interpreter searches is still work.
    searched = {path for path in search if any(_is_within(path, folder) for folder in work)}
    folders.update(search - searched - above_work)
    return Programs(
        frozenset(path for path in folders if path.startswith("/")),
        frozenset(homes | {"/root"}),
        frozenset(facts.get("module", ())),
        frozenset(facts.get("file", ())),
        frozenset(searched),
    )


@dataclass(frozen=True)
class GoldPaths:
    """The paths that gold changes.

    Attributes:
        paths: the paths.
        new_folders: folders among them that gold creates, or removes.
    """

    paths: frozenset[str] = frozenset()
    new_folders: frozenset[str] = frozenset()

    @classmethod
    def of_changes(cls, changes: Changes) -> GoldPaths:
        """Return the paths from the changes in a sandbox in which gold was played."""
        folders = {
            path
            for path, entry in changes.entries.items()
            if (is_folder(entry) and _is_new(path, changes))
            or (not is_folder(entry) and is_folder(changes.before.get(path)))
        }
        return cls(frozenset(changes.entries), frozenset(folders))

    @classmethod
    def of_patches(cls, task: Task) -> GoldPaths | None:
        """Return the paths of a task whose gold is patches; None if gold has to be played."""
        if not all(map(is_patch, task.gold)):
            return None
        root = _root(task)
        patched = (path for patch in task.gold for path in paths_of_patch(patch))
        return cls(frozenset(posixpath.join(root, path) for path in patched))

    def __contains__(self, path: str) -> bool:
        """Whether gold changes a path, makes a folder that it is in, or changes data next to it."""
        if path in self.paths or not self.new_folders.isdisjoint(parents(path)):
            return True
        data = _DATA.fullmatch(path)
        return data is not None and self.touches(data[1])

    def touches(self, folder: str) -> bool:
        """Whether gold changes anything in a folder, or the folder itself."""
        return any(_is_within(path, folder) for path in self.paths)


@dataclass(frozen=True)
class Carrying:
    """Decides which parts of a task's end states are carried.

    Args:
        task: the task, which has a verification.
        programs: where the verifier's programs load from.
        gold: returns what gold changes. Gold may have to be played for that, so this is called only
            if something would be left out.
    """

    task: Task
    programs: Programs = field(default_factory=Programs)
    gold: Callable[[], GoldPaths] = GoldPaths

    def is_cache(self, path: str) -> bool:
        """Whether a path is a file that programs write for their own use."""
        return _CACHES.fullmatch(path) is not None and not self._is_declared(path)

    def left_out(self, changes: Changes, paths: Iterable[str]) -> set[str]:
        """Return the changed paths of an agent that are not carried.

        Args:
            changes: all that the agent changed, including what was in folders that it removed.
            paths: the changed paths to decide about.
        """
        paths = list(paths)
        occupied = self._occupied(changes)
        loaded = {path for path in paths if path not in occupied and self._is_loaded(path, changes)}
        hidden = {path: self._hidden(path) for path in paths if path not in loaded}
        hidden = {path: top for path, top in hidden.items() if top}
        loaded.update(self._shadows(changes, paths))
        if loaded or hidden:
            gold = self.gold()
            loaded = {path for path in loaded if path not in gold}
            loaded.update(path for path, top in hidden.items() if not gold.touches(top))
        left_out = loaded | occupied.intersection(paths)
        # A removed path can only be kept if the folders that it was in are kept, too.
        for path in paths:
            if path in loaded and changes.entries.get(path) is None:
                gone = (parent for parent in parents(path) if parent in changes.entries)
                left_out.update(a for a in gone if not is_folder(changes.entries[a]))
        return left_out

    # -- rules

    def _is_declared(self, path: str) -> bool:
        verification = self.task.verification
        declared = verification.carried if verification is not None else ()
        return any(_is_within(path, folder) for folder in declared)

    def _is_loaded(self, path: str, changes: Changes) -> bool:
        """Whether programs of the verifier would load a path because of its place or name."""
        if self._is_declared(path):
            return False
        entry, previous = changes.entries.get(path), changes.before.get(path)
        # A folder is loaded only if everything in it is: ``build`` is not a BUILD file. But if it
        # replaces a file, that file is removed.
        if is_folder(entry) and _SETTINGS.fullmatch(f"{path}/."):
            return True
        was_file = not is_folder(entry) or _is_file(previous)
        if was_file and (_SETTINGS.fullmatch(path) or path in self._above_programs):
            return True
        if self.is_test(path):
            return True
        # Without a repository, files that check the work cannot be told from the work.
        if repository_of(self.task) is not None and path in self._named:
            return True
        for start, folder, loads in self._places:
            if path.startswith(start) or path == folder:
                return loads
        return False

    def is_test(self, path: str) -> bool:
        """Whether a path belongs to a repository's own tests, by its name."""
        if repository_of(self.task) is None:
            return False
        return _TESTS.fullmatch(posixpath.relpath(path, _root(self.task))) is not None

    def _hidden(self, path: str) -> str:
        """Return the hidden file or folder of the work at or above a path; empty for none."""
        for folder in self._work():
            if folder != "/" and _is_within(path, folder) and not self._is_declared(path):
                match = _HIDDEN.fullmatch(path[len(folder) :])
                return folder + match[1] if match is not None else ""
        return ""

    @cached_property
    def _above_programs(self) -> set[str]:
        """Return the folders above programs and homes; a link there would replace these too."""
        programs = self.programs
        folders = {folder for place in programs.folders for folder in parents(place)}
        folders.update(folder for home in programs.homes for folder in (home, *parents(home)))
        return folders

    @cached_property
    def _places(self) -> list[tuple[str, str, bool]]:
        """Return prefixes of paths, the folder of each, and whether programs load from it.

        The first prefix that matches decides: the longest, or of equal ones that of programs.
        """
        places = [(f"{folder}/", folder, True) for folder in self.programs.folders]
        repository = repository_of(self.task)
        homes = self.programs.homes - ({_root(self.task)} if repository is not None else set())
        places += [(f"{home}/.", "", True) for home in homes]
        places += [(f"{folder.rstrip('/')}/", folder, False) for folder in self._work()]
        return sorted(places, key=lambda place: (-len(place[0]), not place[2]))

    def _work(self) -> tuple[str, ...]:
        task = self.task
        return (_root(task), posixpath.normpath(task.workdir))

    @cached_property
    def _named(self) -> set[str]:
        """Return the paths of tests, and of files that the command names."""
        verification = self.task.verification
        assert verification is not None
        names = (*verification.fail_to_pass, *verification.pass_to_pass)
        tests = {name.partition("::")[0] for name in names if "::" in name}
        words = _WORD.findall(verification.command)  # such as a project's own script
        work = self._work()
        places = {work[0], *work, _joined(work[1], verification.workdir)}
        paths = {_joined(place, word) for place in places for word in words}
        return paths | {_joined(work[0], test) for test in tests}

    @cached_property
    def _brought(self) -> set[str]:
        """Return the paths of files that the verification itself brings."""
        verification = self.task.verification
        assert verification is not None
        workdir = self.task.workdir
        brought = {_joined(workdir, path) for path in verification.files}
        brought.update(
            _joined(_root(self.task), path) for path in paths_of_patch(verification.patch)
        )
        brought.update(posixpath.normpath(a.at) for a in verification.archives if a.at.strip("/"))
        if verification.report:
            brought.add(_joined(workdir, verification.report))
        return brought - {"/"}

    def _occupied(self, changes: Changes) -> set[str]:
        """Return changed paths where the verification brings something, or that are in the way."""
        brought = self._brought
        folders = {folder for path in brought for folder in parents(path)}
        return {
            path
            for path, entry in changes.entries.items()
            if path in brought
            or (path in folders and not is_folder(entry))
            or not brought.isdisjoint(parents(path))
        }

    def _shadows(self, changes: Changes, paths: Iterable[str]) -> Iterator[str]:
        """Yield new modules that would be imported instead of the verifier's own.

        An interpreter first searches the folder that tests run in and the folders of test files,
        before those of the runner and of the standard library.
        """
        modules, files = self.programs.modules, self.programs.files
        if not (modules or files):
            return
        new = {path for path in changes.entries if _is_new(path, changes)}
        if not new:
            return
        roots = {
            posixpath.normpath(f"{root}/{source}") for root in self._roots() for source in _SOURCES
        }
        for path in paths:
            if self._is_declared(path):
                continue
            for root in roots.intersection(parents(path)):
                tail = path[len(root.rstrip("/")) + 1 :]
                if tail in files and path in new:
                    yield path
                first, _, inner = tail.partition("/")
                top = posixpath.join(root, first)
                if first.partition(".")[0] not in modules:
                    continue
                if inner:
                    # Without this file, a folder comes after every module of its name.
                    starts = {f"{top}/__init__{suffix}" for suffix in _IMPORTED}
                    if path in starts & new or (top in new and starts & new):
                        yield path
                elif top not in new:
                    continue
                elif first.endswith(_IMPORTED) or _is_link(changes.entries[path]):
                    yield path

    def _roots(self) -> set[str]:
        work = {folder.rstrip("/") or "/" for folder in self._work()}
        tests = self._brought | self._named
        folders = self.programs.searched | self._named
        folders |= {folder for path in tests for folder in parents(path)}
        return work | {folder for folder in folders if any(_is_within(folder, w) for w in work)}


# -- paths


def parents(path: str) -> Iterator[str]:
    """Yield the folders that an absolute path is in, the nearest first and ``/`` last."""
    while path != "/":
        path = posixpath.dirname(path)
        yield path


def topmost(paths: Iterable[str]) -> list[str]:
    """Return the paths that are not below another one of them, sorted."""
    every = set(paths)
    return sorted(path for path in every if every.isdisjoint(parents(path)))


def _root(task: Task) -> str:
    """Return the folder that paths of a task's patches and tests are relative to."""
    repository = repository_of(task)
    return posixpath.normpath(repository.at if repository is not None else task.workdir)


def _joined(folder: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(folder, path))


def _is_within(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _is_file(entry: Entry | None) -> bool:
    return entry is not None and entry.type != "d"


def _is_link(entry: Entry | None) -> bool:
    return entry is not None and entry.type == "l"


def _is_new(path: str, changes: Changes) -> bool:
    return path in changes.before and changes.before[path] is None
