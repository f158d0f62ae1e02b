"""Read and write files below one directory, on this machine or on a file system of Hadoop.

Catalogs need two guarantees: only one of several writers can create a file, and no reader ever sees
a partly written file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlml.errors import CatalogError
from sqlml.regular_files import irregular_mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LocalFiles:
    """The files below a local directory, with relative paths such as `index/1.json`.

    Messages show the directory as `location`. File system errors become CatalogErrors.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self.location: str = str(folder)

    def names(self, folder: str) -> list[str]:
        """Return the names of a folder's entries, or an empty list if the folder is missing."""
        return list(self._read(folder, os.listdir) or ())

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None if the file is missing."""
        content: bytes | None = self._read(path, self._read_regular)
        return content

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes, or None if the file is missing or not regular."""
        status: os.stat_result | None = self._read(path, os.stat)
        return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None

    def _read(self, path: str, action: Callable[[Path], Any]) -> Any:
        try:
            return action(self._folder / path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _make_error("read", f"{self.location}/{path}", error) from None

    def _read_regular(self, path: Path) -> bytes:
        with open(path, "rb", opener=_open_without_waiting) as file:
            irregular = irregular_mode(os.fstat(file.fileno()).st_mode)
            if irregular is not None:
                raise _make_error("read", str(path), f"it is {irregular}")
            return file.read()

    def add(self, path: str, content: bytes) -> bool:
        """Create a file through a temporary file; return False if `path` already exists."""
        target_path = self._folder / path
        try:
            target_path.parent.mkdir(parents=True, exist_ok=True)
            temporary_path = target_path.with_name(f".{uuid4().hex}.new")
            try:
                with open(temporary_path, "xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(temporary_path, target_path)
            except FileExistsError:
                return False
            finally:
                temporary_path.unlink(missing_ok=True)
        except OSError as error:
            raise _make_error("write", f"{self.location}/{path}", error) from None
        return True

    def remove(self, path: str) -> None:
        try:
            (self._folder / path).unlink(missing_ok=True)
        except OSError as error:
            raise _make_error("remove", f"{self.location}/{path}", error) from None


class HadoopFiles:
    """The files below a directory that Spark's Hadoop libraries can reach (hdfs, s3a, gs, ...)."""

    def __init__(self, folder: str, spark: SparkSession) -> None:
        self.location: str = folder.rstrip("/")
        jvm: Any = spark.sparkContext._jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        try:
            root = self._hadoop.Path(self.location)
            self._files = root.getFileSystem(configuration)
            self._context = self._hadoop.FileContext.getFileContext(root.toUri(), configuration)
        except Exception as error:
            raise _make_error("reach", self.location, error) from None
        options = jvm.java.lang.reflect.Array.newInstance(
            jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename"), 1
        )
        options[0] = getattr(self._hadoop, "Options$Rename").NONE
        self._rename_options = options

    def names(self, folder: str) -> list[str]:
        statuses = self._read(folder, self._files.listStatus)
        return [str(status.getPath().getName()) for status in statuses or ()]

    def read(self, path: str) -> bytes | None:
        content: bytes | None = self._read(path, self._read_stream)
        return content

    def size(self, path: str) -> int | None:
        status = self._read(path, self._files.getFileStatus)
        return int(status.getLen()) if status is not None and status.isFile() else None

    def _read(self, path: str, action: Callable[[Any], Any]) -> Any:
        try:
            return action(self._make_path(path))
        except Exception as error:
            if "FileNotFoundException" in str(error):
                return None
            raise _make_error("read", f"{self.location}/{path}", error) from None

    def _read_stream(self, path: Any) -> bytes:
        stream = self._files.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def add(self, path: str, content: bytes) -> bool:
        """Create a file through a temporary file; return False if `path` already exists."""
        target_path = self._make_path(path)
        temporary_path = self._hadoop.Path(target_path.getParent(), f".{uuid4().hex}.new")
        try:
            if self._files.exists(target_path):
                return False
            stream = self._files.create(temporary_path, False)
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()
            try:
                self._context.rename(temporary_path, target_path, self._rename_options)
            except Exception as error:
                if "FileAlreadyExistsException" in str(error):
                    self._files.delete(temporary_path, False)
                    return False
                raise
        except Exception as error:
            raise _make_error("write", f"{self.location}/{path}", error) from None
        return True

    def remove(self, path: str) -> None:
        try:
            self._files.delete(self._make_path(path), False)
        except Exception as error:
            raise _make_error("remove", f"{self.location}/{path}", error) from None

    def _make_path(self, path: str) -> Any:
        return self._hadoop.Path(f"{self.location}/{path}")


Files = LocalFiles | HadoopFiles


def open_files(folder: str, spark: SparkSession) -> Files:
    """Return the files below `folder`, a local path or a URI."""
    scheme, _, path = folder.partition(":")
    if scheme == "file":
        if not path.startswith("/"):
            advice = "a file URI needs an absolute path, such as file:/models"
            raise _make_error("reach", folder, advice)
        return LocalFiles("/" + path.lstrip("/"))
    if "://" in folder or (len(scheme) > 1 and path.startswith("/")):
        return HadoopFiles(folder, spark)
    return LocalFiles(folder)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file without waiting for a writer if the file is a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _make_error(verb: str, path: str, reason: str | Exception) -> CatalogError:
    if isinstance(reason, OSError):
        reason = str(reason.strerror)
    elif isinstance(reason, Exception):  # Leave out Java's stack trace.
        java_error = getattr(reason, "java_exception", None)
        reason = str(reason if java_error is None else java_error.getMessage()).splitlines()[0]
    advice = "choose another directory (for models: sqlml.attach(spark, catalog=...))"
    return CatalogError(f"cannot {verb} {path}: {reason}; {advice}")
