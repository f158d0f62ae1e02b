"""The files of one directory, on this machine or on any file system of Hadoop.

A catalog needs little: complete files, each of which exactly one of several writers can create, and
which no reader ever sees half written.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sqlml.errors import CatalogError
from sqlml.regular_files import irregular_mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LocalFiles:
    """Files of this machine below a directory, by relative paths such as `index/1.json`.

    `place` is the directory as messages show it. Methods raise CatalogError if the file system
    fails.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self.place = str(folder)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; an empty list if it is missing."""
        try:
            return os.listdir(self._folder / folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _cannot("read", f"{self.place}/{folder}", error.strerror) from None

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None if it is missing."""
        try:
            with open(self._folder / path, "rb", opener=_at_once) as file:
                irregular = irregular_mode(os.fstat(file.fileno()).st_mode)
                if irregular is not None:
                    raise _cannot("read", f"{self.place}/{path}", f"it is {irregular}")
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _cannot("read", f"{self.place}/{path}", error.strerror) from None

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes, or None if it is missing or not regular."""
        try:
            status = (self._folder / path).stat()
            return status.st_size if stat.S_ISREG(status.st_mode) else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _cannot("read", f"{self.place}/{path}", error.strerror) from None

    def add(self, path: str, content: bytes) -> bool:
        """Add a complete file; False if it exists. Only one process can make the hard link."""
        target = self._folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_name(f".{uuid4().hex}.new")
            try:
                with open(fresh, "xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    os.link(fresh, target)
                except FileExistsError:
                    return False
            finally:
                fresh.unlink(missing_ok=True)
        except OSError as error:
            raise _cannot("write", f"{self.place}/{path}", error.strerror) from None
        return True

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        try:
            (self._folder / path).unlink(missing_ok=True)
        except OSError as error:
            raise _cannot("remove", f"{self.place}/{path}", error.strerror) from None


class HadoopFiles:
    """Files of a file system that Spark's Hadoop libraries reach: hdfs, s3a, abfss, gs, ...

    It has the methods of `LocalFiles`.

    Raises:
        CatalogError: Hadoop does not reach the file system.
    """

    def __init__(self, folder: str, spark: SparkSession) -> None:
        self.place = folder.rstrip("/")
        jvm: Any = spark.sparkContext._jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        try:
            root = self._hadoop.Path(self.place)
            self._files = root.getFileSystem(configuration)
            self._context = self._hadoop.FileContext.getFileContext(root.toUri(), configuration)
        except Exception as error:
            raise _cannot("reach", self.place, _reason(error)) from None
        options = jvm.java.lang.reflect.Array.newInstance(
            jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename"), 1
        )
        options[0] = getattr(self._hadoop, "Options$Rename").NONE
        self._no_overwriting = options

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; an empty list if it is missing."""
        try:
            statuses = self._files.listStatus(self._path(folder))
        except Exception as error:
            if "FileNotFoundException" in str(error):
                return []
            raise _cannot("read", f"{self.place}/{folder}", _reason(error)) from None
        return [str(status.getPath().getName()) for status in statuses]

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None if it is missing."""
        try:
            stream = self._files.open(self._path(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()
        except Exception as error:
            if "FileNotFoundException" in str(error):
                return None
            raise _cannot("read", f"{self.place}/{path}", _reason(error)) from None

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes, or None if it is missing or not a file."""
        try:
            status = self._files.getFileStatus(self._path(path))
            return int(status.getLen()) if status.isFile() else None
        except Exception as error:
            if "FileNotFoundException" in str(error):
                return None
            raise _cannot("read", f"{self.place}/{path}", _reason(error)) from None

    def add(self, path: str, content: bytes) -> bool:
        """Add a complete file; return False if it exists. The rename fails if it exists."""
        target = self._path(path)
        fresh = self._hadoop.Path(target.getParent(), f".{uuid4().hex}.new")
        try:
            if self._files.exists(target):
                return False
            stream = self._files.create(fresh, False)
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()
            try:
                self._context.rename(fresh, target, self._no_overwriting)
            except Exception as error:
                if "FileAlreadyExistsException" in str(error):
                    self._files.delete(fresh, False)
                    return False
                raise
        except Exception as error:
            raise _cannot("write", f"{self.place}/{path}", _reason(error)) from None
        return True

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        try:
            self._files.delete(self._path(path), False)
        except Exception as error:
            raise _cannot("remove", f"{self.place}/{path}", _reason(error)) from None

    def _path(self, path: str) -> Any:
        return self._hadoop.Path(f"{self.place}/{path}")


Files = LocalFiles | HadoopFiles


def files_of(folder: str, spark: SparkSession) -> Files:
    """Return the files below a path or URI."""
    scheme, _, rest = folder.partition(":")
    if scheme == "file":
        if not rest.startswith("/"):
            raise _cannot(
                "reach", folder, "a file URI needs an absolute path, such as file:/models"
            )
        return LocalFiles("/" + rest.lstrip("/"))
    if "://" in folder or (len(scheme) > 1 and rest.startswith("/")):
        return HadoopFiles(folder, spark)
    return LocalFiles(folder)


def _at_once(path: str, flags: int) -> int:
    """Open a file without waiting for a pipe's writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _cannot(what: str, place: str, why: str | None) -> CatalogError:
    return CatalogError(
        f"cannot {what} {place}: {why}; choose another directory (for models: sqlml.attach(spark, "
        "catalog=...))"
    )


def _reason(error: Exception) -> str:
    """Return Java's message without its stack trace."""
    cause = getattr(error, "java_exception", None)
    return str(cause.getMessage() if cause is not None else error).splitlines()[0]
