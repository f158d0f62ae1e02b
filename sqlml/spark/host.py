"""`SparkHost`: a session's files, wherever Hadoop's file systems reach, and its rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlml.errors import ArtifactError, ParseError
from sqlml.regular_files import check_regular
from sqlml.spark.files import Files, files_of
from sqlml.spark.literal_parameters import with_literals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkHost:
    """A SparkSession's files and rows (`Host`).

    A path without a scheme is one of the driver's machine.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def read_file(self, path: str) -> list[tuple[str, int]]:
        """Name and size of the file that `path` means; none if it does not exist."""
        files, name = self._place(path)
        size = files.size(name)
        return [] if size is None else [(path, size)]

    def file_content(self, path: str) -> bytes:
        """The bytes of one file.

        Raises:
            ArtifactError: it is not there any more.
        """
        files, name = self._place(path)
        content = files.read(name)
        if content is None:
            raise ArtifactError(f"file {path!r} no longer exists")
        return content

    def write_file(self, path: str, content: bytes) -> None:
        """Write one file, replacing an existing one.

        Raises:
            ArtifactError: the path holds something other than a regular file.
        """
        check_regular(path)  # which the next lines would replace
        files, name = self._place(path)
        if not files.add(name, content):
            files.remove(name)
            files.add(name, content)

    def _place(self, path: str) -> tuple[Files, str]:
        folder, name = os.path.split(path)
        return files_of(folder or ".", self._spark), name

    def columns(self, query: str) -> list[str]:
        """The names of a query's columns."""
        return list(self._spark.sql(query).columns)

    def function_type(self, name: str) -> str | None:
        """None: nobody asks, since Spark calls functions of Python for every row."""
        return None

    def view(self, table: str) -> str | None:
        """None: nobody asks, since nothing in a query is saved in Spark."""
        return None

    def read(self, query: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        """The rows of a query of ours."""
        return [tuple(row) for row in self._spark.sql(query, list(parameters) or None).collect()]

    def with_values(self, query: str, values: Any) -> str:
        """The query with values in place of its parameters: `?` or `:name`."""
        return with_literals(query, values)

    def fetch_frame(self, query: str) -> Any:
        """The rows of a query as a pandas frame.

        Raises:
            ParseError: not a query.
        """
        from pyspark.errors import ParseException

        try:
            return self._spark.sql(f"SELECT * FROM (\n{query}\n)").toPandas()
        except ParseException as error:
            raise ParseError(str(error).split("\n")[0]) from None
