"""The dbt-duckdb plugin, enabled in profiles.yml with `plugins: [{module: sqlml}]`.

dbt-duckdb finds the class under the name `sqlml.Plugin`. The macros are in `dbt_macros.sql`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbt.adapters.duckdb.environments.local import LocalEnvironment
from dbt.adapters.duckdb.plugins import BasePlugin

from sqlml.open_session import attach
from sqlml.session.session import Session

MODULE = "sqlml"
"""The name of the plugin in profiles.yml."""


class Plugin(BasePlugin):
    """Gives dbt's threads Sessions instead of DuckDB cursors.

    The only setting is `allow_pickle`, which is false by default.
    """

    session: Session

    def initialize(self, plugin_config: Mapping[str, Any]) -> None:
        """Read `plugin_config`, and make dbt-duckdb use cursors of the plugin's Session."""
        self.allow_pickle: bool = plugin_config.get("allow_pickle", False) is True
        LocalEnvironment.initialize_cursor = classmethod(_initialize_cursor)

    def configure_connection(self, conn: Any) -> None:
        """Open a Session on `conn`, the connection from which dbt-duckdb makes all cursors."""
        self.session = attach(conn, allow_pickle=self.allow_pickle)


_initialize_dbt_cursor = LocalEnvironment.initialize_cursor.__func__


def _initialize_cursor(
    cls: Any, creds: Any, cursor: Any, plugins: Any = None, registered_df: Any = None
) -> Any:
    """Set up a cursor of the plugin's Session, since dbt-duckdb has no hook to replace cursors."""
    for plugin in (plugins or {}).values():
        if isinstance(plugin, Plugin):
            cursor = plugin.session.cursor()
    return _initialize_dbt_cursor(cls, creds, cursor, plugins, registered_df or {})
