"""One connection of its own: opened when it is needed, and again after it was lost."""

from toolpost.store.postgres.connection import DATABASE_ERRORS, Database, OwnConnection


class Link:
    """For one user at a time."""

    def __init__(self, database: Database, connection: OwnConnection | None = None) -> None:
        self._database = database
        self._connection = connection

    async def connection(self) -> OwnConnection:
        """Return the connection, a new one if the last was lost."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.connect()
        return self._connection

    def drop(self) -> None:
        """Let go of a connection whose state is not known."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def aclose(self) -> None:
        """Say goodbye."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            try:
                await connection.close(timeout=1)
            except DATABASE_ERRORS:
                connection.terminate()
