"""What SQL may do in a session's SQLite process, as SQLite asks it while it prepares a statement.

Everything that reaches beyond the session's own database is denied: other files, extensions, most
PRAGMAs. A session that only reads may also not change it, but may make temporary things.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Rules"]

# SQLite's numbers of what a statement may do; Python 3.10 has no names for some.
_INSERT, _UPDATE, _DELETE, _READ, _PRAGMA, _FUNCTION = 18, 23, 9, 20, 19, 31
_ATTACH, _DETACH, _ALTER, _CREATE_VTABLE = 24, 25, 26, 29
# BEGIN, SAVEPOINT, SELECT, READ, RECURSIVE, and what makes or drops temporary things
_HARMLESS = {22, 32, 21, _READ, 33, 3, 4, 5, 6, 12, 13, 14, 15}
_OK, _DENY = 0, 1
_DENIALS = ("not authorized", "authorization denied", "prohibited")

_MODULES = {"fts4", "fts5", "rtree"}
_FUNCTIONS = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}
_ASKING = {
    *("table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo"),
    *("foreign_key_list", "foreign_key_check", "function_list", "collation_list", "module_list"),
    *("pragma_list", "compile_options", "integrity_check", "quick_check", "encoding"),
    *("page_count", "page_size", "freelist_count", "data_version", "schema_version"),
}
_UNSETTABLE = {"encoding", "page_size", "schema_version", "page_count", "data_version"}
_SETTING = {
    *("user_version", "application_id", "foreign_keys", "recursive_triggers"),
    *("defer_foreign_keys", "case_sensitive_like", "ignore_check_constraints"),
    *("legacy_alter_table", "reverse_unordered_selects"),
}


class Rules:
    """An authorizer for one connection.

    Attributes:
        writes: the session may change its database.
        on_disk: the database is a file of the host's, whose path is not told.
        denied: why the last statement was denied; the empty string if it was not.
    """

    def __init__(self) -> None:
        self.writes = False
        self.on_disk = False
        self.denied = ""

    def explain(self, said: str) -> str:
        """Return our reason in place of SQLite's bare "not authorized"."""
        return self.denied if any(word in said for word in _DENIALS) and self.denied else said

    def authorize(self, action: int, one: Any, two: Any, schema: Any, _: Any) -> int:
        """Say whether SQLite may do a thing (its manual, "Authorizer Action Codes")."""
        if action in _HARMLESS:
            return _OK
        if action == _FUNCTION:
            return self._unless(str(two).lower() in _FUNCTIONS, f"the function {two}()")
        if action == _PRAGMA:
            return self._unless(not self._pragma(str(one).lower(), two), f"this PRAGMA {one}")
        if action in (_ATTACH, _DETACH):
            return self._unless(True, "ATTACH, DETACH and VACUUM")
        if action == _CREATE_VTABLE and str(two).lower() not in _MODULES:
            return self._unless(True, f"the module {two}")
        if schema == "temp" or (action == _ALTER and one == "temp"):
            return _OK
        if action in (_INSERT, _UPDATE, _DELETE) and one == "sqlite_master":
            return _OK  # SQLite's own doing; where it is not, SQLite refuses by itself
        if self.writes:
            return _OK
        self.denied = "the database is read-only: only queries and temporary tables are allowed"
        return _DENY

    def _unless(self, denied: bool, what: str) -> int:
        if denied:
            self.denied = f"{what} cannot be used here"
        return _DENY if denied else _OK

    def _pragma(self, name: str, value: Any) -> bool:
        if name == "database_list":
            return not self.on_disk  # it would tell a path of the host
        if name in ("user_version", "application_id") and value is not None:
            return self.writes
        if name in _SETTING:
            return True
        return name in _ASKING and (value is None or name not in _UNSETTABLE)
