"""What the exit status of shell text says about the commands in it. Pure.

It follows Bash's manual on ``set -e``, ``set -o pipefail``, lists and ``exit``. If a status depends
on what happens while the text runs, it counts as unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from pytest_intercode.projects.shell_words import Word

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["Place", "ShellState", "StatusLink"]

StatusLink: TypeAlias = Literal["equal", "success", "none"]
"""What the exit status of a text says about one of its commands: it equals the command's (equal);
the command succeeded if the text did (success); nothing (none)."""

_ENDING = frozenset(("exit", "return", "exec"))


@dataclass(frozen=True)
class Place:
    """The context of a node.

    Attributes:
        link: what the exit status of the whole text says about it.
        function: the function in whose body it is.
        document: its standard input, as far as the text shows it.
        end: where its text ends, including its redirections; 0 if it has none.
        words: those of its words that follow a redirection.
        is_certain: whether it runs unconditionally in its shell.
        is_followed: whether more follows in spite of a failed list: ``set -e`` heeds only the last
            part of a list.
        is_checked: whether ``set -e`` has no effect in it, as before ``&&``.
        needs_errexit: whether its link holds only if ``set -e`` is still in effect when it ends, as
            for all but the last of several statements. A part of it may turn that off.
    """

    link: StatusLink
    function: str = ""
    document: str | None = None
    end: int = 0
    words: tuple[Node, ...] = ()
    is_certain: bool = False
    is_followed: bool = False
    is_checked: bool = False
    needs_errexit: bool = False

    def with_link(self, link: StatusLink) -> Place:
        """Return the place of a part with another link, and without redirections."""
        return Place(
            link, self.function, is_checked=self.is_checked, needs_errexit=self.needs_errexit
        )

    @property
    def weakened(self) -> Place:
        """The place of a command that succeeded if the text did."""
        return self.with_link("none" if self.link == "none" else "success")

    @property
    def in_subshell(self) -> Place:
        """The place of what another shell runs, whose options do not matter to this one."""
        return replace(self, is_followed=False, needs_errexit=False)

    @property
    def unknown(self) -> Place:
        """The place of a command about which the text's status says nothing."""
        return self.with_link("none")


@dataclass
class ShellState:
    """The options of a shell so far, in the order of its text.

    A function may be called anywhere after its definition, so its effects may happen from there on,
    and an option that it would turn off is not relied on.

    Attributes:
        stops: whether it ends after a command that fails (``set -e``).
        may_stop: whether it may have ended with another status than 0.
        may_end: whether it may have ended with any status.
        pipefail: whether a pipeline fails if one of its commands does.
        may_pipefail: whether a pipeline may do so.
        is_fixed: whether no function turns off one of the two options.
    """

    stops: bool = False
    may_stop: bool = False
    may_end: bool = False
    pipefail: bool = False
    may_pipefail: bool = False
    is_fixed: bool = True

    def copy(self) -> ShellState:
        """Return the state of a shell that this one starts, as for ``( )``."""
        return replace(self)

    def statement_place(self, place: Place, *, is_last: bool, in_background: bool) -> Place:
        """Return the place of one of several statements that follow each other.

        Args:
            place: the place of all of them.
            is_last: whether no other one follows.
            in_background: whether the shell does not wait for it.
        """
        if self.may_end or in_background or (place.needs_errexit and not self.stops):
            statement = place.unknown
        elif is_last:
            statement = replace(place, link=place.weakened.link) if self.may_stop else place
        elif self.stops and not place.is_checked:
            statement = replace(place.weakened, is_followed=True, needs_errexit=True)
        else:
            statement = place.unknown
        return replace(statement, is_certain=place.is_certain and not in_background)

    def pipeline_link(self, place: Place, *, is_last: bool) -> StatusLink:
        """Return the link of a part of a pipeline."""
        if self.pipefail or (is_last and self.may_pipefail):
            return place.weakened.link
        return place.link if is_last else "none"

    def note(self, words: Sequence[Word], place: Place) -> None:
        """Note the effects of a command on those that follow.

        Args:
            words: its words.
            place: its place.
        """
        if words[0] == "set":
            self._set_options(words, place)
        elif words[0] in _ENDING and not self._goes_on(words, place):
            status = words[1] if words[0] != "exec" and len(words) > 1 else ""
            fails = status.isascii() and status.isdigit() and int(status[-9:]) % 256 != 0
            self.may_stop, self.may_end = True, self.may_end or not fails

    @staticmethod
    def _goes_on(words: Sequence[Word], place: Place) -> bool:
        """Whether the shell goes on all the same: ``exec >log``, ``return`` from a function."""
        return (
            len(words) == 1 if words[0] == "exec" else words[0] == "return" and place.function != ""
        )

    def note_unparsed(self) -> None:
        """Note that what follows may belong to another shell (``coproc {``)."""
        self.stops = self.pipefail = self.is_fixed = False

    def _set_options(self, words: Sequence[Word], place: Place) -> None:
        position = 1
        while position < len(words) and words[position][:1] in ("-", "+"):
            cluster = words[position]
            position += 1
            if cluster in ("-", "--"):
                return
            for letter in cluster[1:]:
                option = "errexit" if letter == "e" else ""
                if letter == "o" and position < len(words):
                    option = words[position]
                    position += 1
                self._set(option, place, is_on=cluster[0] == "-")
        if position < len(words) and words[position].expands:  # set $OPTIONS
            self.stops = self.pipefail = False
            self.may_stop = self.may_pipefail = True

    def _set(self, option: str, place: Place, *, is_on: bool) -> None:
        takes_effect = is_on and place.is_certain and self.is_fixed
        if option == "errexit":
            self.stops = takes_effect or (is_on and self.stops)
            self.may_stop = self.may_stop or is_on
        elif option == "pipefail":
            self.pipefail = takes_effect or (is_on and self.pipefail)
            self.may_pipefail = self.may_pipefail or is_on
        else:
            return
        if place.function and not is_on:
            self.is_fixed = False
