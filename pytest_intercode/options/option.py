"""Classes for the declaration of options (name, help, values), and for the values of options.

Every pytest run with the plugin installed loads this module, so it imports nothing large.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, overload

from pytest_intercode.core.values import choice

if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Unpack

    class Rules(TypedDict, total=False):
        """Further attributes of an option; :class:`Option` describes them."""

        fallback: str
        distinct: bool
        exists: bool
        everyday: bool
        starts: bool
        same_in_parts: bool
        needs: tuple[str, str]
        excludes: tuple[str, str]


__all__ = [
    "IniType",
    "Option",
    "choices",
    "flag",
    "listed",
    "option",
    "optional",
    "pairs",
    "repeated",
    "switch",
]

Value = TypeVar("Value")
Self = TypeVar("Self", bound="Values")
IniType = Literal["bool", "int", "float", "string", "args", "linelist"]
_INI_TYPES: Mapping[str | None, IniType] = {"bool": "bool", "int": "int", "float": "float"}


class Option(Generic[Value]):
    """One option, ``--intercode-NAME``, with its ini value ``intercode_NAME``.

    It is an attribute of a class; objects of the class have the option's value as that attribute.

    Attributes:
        form: its name, and the form of its value, if it has one: ``NAME=VALUE``, or
            ``NAME KEY=VALUE`` for pairs. A value in lower case lists all allowed values.
        help: its meaning, in one line of Markdown.
        parse: returns the value of a text, or raises a ValueError that says what is needed; None
            if the form determines this. A relative path starts where the option is given.
        default: the text of its default value; empty for None.
        fallback: what applies if the user does not give the option, in words.
        listed: whether it is a list of values, separated by commas; also repeatable, like pairs.
        repeated: whether it is a list of values that may contain commas and spaces: each is given
            separately, in an ini file on its own line.
        distinct: whether it is an error to give a value twice.
        exists: whether the folder that it names must exist.
        everyday: whether ``pytest --help`` shows it; ``--intercode-help`` shows all options.
        starts: whether its ini value alone is a reason to start before the first item is collected.
        same_in_parts: whether all parts of a run (``--intercode-shard``) must have the same value.
        needs: the option that must be given with it, and why.
        excludes: the option that cannot be given with it, and why.
        attribute: the name of the class's attribute.
    """

    attribute: str

    def __init__(
        self,
        form: str,
        help: str,
        parse: Callable[[str], object] | None = None,
        *,
        default: str = "",
        fallback: str = "",
        listed: bool = False,
        repeated: bool = False,
        distinct: bool = False,
        exists: bool = False,
        everyday: bool = False,
        starts: bool = False,
        same_in_parts: bool = False,
        needs: tuple[str, str] | None = None,
        excludes: tuple[str, str] | None = None,
    ) -> None:
        self.form, self.help, self.parse = form, help, parse
        self.default, self.fallback = default, fallback
        self.listed, self.repeated = listed, repeated
        self.distinct, self.exists = distinct, exists
        self.everyday, self.starts, self.same_in_parts = everyday, starts, same_in_parts
        self.needs, self.excludes = needs, excludes

    def __set_name__(self, owner: type[object], name: str) -> None:
        self.attribute = name

    @overload
    def __get__(self, instance: None, owner: type[object]) -> Option[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type[object]) -> Value: ...
    def __get__(self, instance: object | None, owner: type[object]) -> Option[Value] | Value:
        if instance is not None:  # a value in the instance would hide this descriptor
            raise AttributeError(f"{owner.__name__} object has no value of --intercode-{self.form}")
        return self

    @property
    def name(self) -> str:
        """The name, with hyphens."""
        return self.form.replace(" ", "=").partition("=")[0]

    @property
    def metavar(self) -> str:
        """The form of its value; empty for a flag."""
        return self.form[len(self.name) + 1 :]

    @property
    def pairs(self) -> bool:
        """Whether its values are pairs."""
        return " " in self.form

    @property
    def several(self) -> bool:
        """Whether it may be given more than once."""
        return self.listed or self.repeated or self.pairs

    @property
    def allowed(self) -> tuple[str, ...]:
        """The only allowed values; empty if it takes others."""
        if self.parse is not None or not self.metavar.islower():
            return ()
        return tuple(self.metavar.split("|"))

    @property
    def key(self) -> str:
        """The name, with underscores."""
        return self.name.replace("-", "_")

    @property
    def ini(self) -> str:
        """The name of the ini value; pytest also keeps the option under it."""
        return f"intercode_{self.key}"

    @property
    def ini_type(self) -> IniType:
        """The type of its ini value, as pytest names it."""
        if self.listed or self.pairs:
            return "args"
        if self.repeated:
            return "linelist"
        if not self.metavar:
            return "bool"
        # A parser's annotations are strings here; they tell the type that it returns.
        result = getattr(self.parse, "__annotations__", {}).get("return")
        return _INI_TYPES.get(result, "string")

    @property
    def description(self) -> str:
        """The help with the default, in Markdown."""
        default = f"`{self.default}`" if self.default else self.fallback
        note = f"default: {default}" if default else "repeatable" if self.several else ""
        note = "repeatable, comma-separated" if self.listed else note
        return f"{self.help} ({note})" if note else self.help

    def value(self, text: str) -> object:
        """Return the value of a text, or of one element of a list.

        Raises:
            ValueError: the text is wrong; the message says what is needed.
            ConfigurationError: the same, with a message that also says where the text is.
        """
        if self.pairs:
            key, sign, content = text.partition("=")
            if not sign or not key.strip():
                raise ValueError(f"the form {self.metavar} is needed, found {text!r}")
            content = content.strip()
            return key.strip(), self.parse(content) if self.parse is not None else content
        if self.parse is not None:
            return self.parse(text)
        if not self.metavar:
            return _flag(text)
        return choice(*self.allowed)(text) if self.allowed else text


class Values:
    """The values of options, as attributes; they are immutable.

    If the settings derive another value from an option, depending on other options or on the
    environment, its attribute is named ``requested_...`` or ``..._path``.

    Args:
        values: the values by the names of the attributes.
    """

    title: ClassVar[str]
    """The topic of a class's options, shown as the title of their group."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        vars(self).update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"settings do not change: {name} cannot be set")

    def replace(self: Self, **values: Any) -> Self:
        """Return a copy with other values for these attributes."""
        changed = object.__new__(type(self))
        vars(changed).update(vars(self) | values)
        return changed


# -- makers of options, by the type of their values


def flag(name: str, help: str, **rules: Unpack[Rules]) -> Option[bool]:
    """Return an option without a value."""
    return Option(name, help, **rules)


def switch(form: str, help: str, *, default: str, **rules: Unpack[Rules]) -> Option[bool]:
    """Return an option that is ``true`` or ``false``, with a default that may be either."""
    return Option(form, help, _flag, default=default, **rules)


def optional(
    form: str,
    help: str,
    parse: Callable[[str], Value],
    **rules: Unpack[Rules],
) -> Option[Value | None]:
    """Return an option that is None if it is not given."""
    return Option(form, help, parse, **rules)


def option(
    form: str,
    help: str,
    parse: Callable[[str], Value],
    *,
    default: str,
    **rules: Unpack[Rules],
) -> Option[Value]:
    """Return an option with a default."""
    return Option(form, help, parse, default=default, **rules)


def choices(
    form: str,
    help: str,
    *,
    default: str = "",
    **rules: Unpack[Rules],
) -> Option[Any]:
    """Return an option with one of the values that its form lists."""
    return Option(form, help, default=default, **rules)


def listed(
    form: str,
    help: str,
    parse: Callable[[str], Value],
    **rules: Unpack[Rules],
) -> Option[tuple[Value, ...]]:
    """Return an option with a list of values."""
    return Option(form, help, parse, listed=True, **rules)


def repeated(
    form: str,
    help: str,
    parse: Callable[[str], Value],
    **rules: Unpack[Rules],
) -> Option[tuple[Value, ...]]:
    """Return an option with a list of values that are given one at a time."""
    return Option(form, help, parse, repeated=True, **rules)


def pairs(
    form: str,
    help: str,
    parse: Callable[[str], Value],
    **rules: Unpack[Rules],
) -> Option[Mapping[str, Value]]:
    """Return an option with pairs of a key and a value."""
    return Option(form, help, parse, **rules)


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
        raise ValueError("true or false is needed")
    return value.lower() in ("true", "1", "yes", "on")
