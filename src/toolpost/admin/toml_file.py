"""A TOML file that belongs to a person: entries are added, everything else in it is kept."""

from collections.abc import Mapping
from typing import Any

from toolpost.admin.files import TextFile
from toolpost.admin.toml_text import add_servers, parse_servers, render_entry
from toolpost.settings.variables import make_variable_name


class TomlFile(TextFile):
    """The file as it was when it was read."""

    def read_section(self, section: str = "servers") -> dict[str, Any]:
        """Return the entries of a section, as written; raises `BadConfiguration`."""
        return parse_servers(self.text or "", self.path, section)

    def add_tables(self, tables: Mapping[str, str], *, may_show: bool, section: str = "servers") -> str:
        """Return the text with these entries added or replaced; raises `BadConfiguration` unless that is all that changes.

        `may_show`: an error may repeat the entries, which have no secrets.
        """
        return add_servers(self.text or "", self.path, tables, may_show=may_show, section=section)

    @staticmethod
    def render_entry(section: str, name: str, values: Mapping[str, Any], remark: str) -> str:
        """Return an entry as TOML, for `add_tables`."""
        return render_entry(section, name, values, remark)

    @staticmethod
    def name_variable(*words: str) -> str:
        """Return the name of an environment variable for a secret, which an entry refers to instead of containing it."""
        return make_variable_name(*words)
