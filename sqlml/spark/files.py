"""`Files`: the files below one directory, on this machine or wherever Hadoop's file systems reach.

What a catalog needs is little: whole files, of which a new one is made by exactly one of several
writers, and is never seen half written.
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
    """Files of this machine below a directory, by paths relative to it such as `index/1.json`.

    `place` is the directory, as messages name it. What the file system refuses is a CatalogError.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self.place = str(folder)

    def names(self, folder: str) -> list[str]:
        """Names in a folder; none if the folder is missing."""
        try:
            return os.listdir(self._folder / folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _cannot("read", f"{self.place}/{folder}", error.strerror) from None

    def read(self, path: str) -> bytes | None:
        """Content of a file; None if it is missing."""
        try:
            with open(self._folder / path, "rb", opener=_at_once) as file:
                found = irregular_mode(os.fstat(file.fileno()).st_mode)
                if found is not None:
                    raise _cannot("read", f"{self.place}/{path}", f"it is {found}")
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _cannot("read", f"{self.place}/{path}", error.strerror) from None

    def size(self, path: str) -> int | None:
        """Bytes of a file; None if it is missing or not a regular file."""
        try:
            found = (self._folder / path).stat()
            return found.st_size if stat.S_ISREG(found.st_mode) else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _cannot("read", f"{self.place}/{path}", error.strerror) from None

    def add(self, path: str, content: bytes) -> bool:
        """Add a file, whole or not at all; False if there is one.

        Only one process can make the hard link.
        """
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
        """Remove a file, if it is there."""
        try:
            (self._folder / path).unlink(missing_ok=True)
        except OSError as error:
            raise _cannot("remove", f"{self.place}/{path}", error.strerror) from None


class HadoopFiles:
    """Files of a file system that Spark's own Hadoop libraries reach: hdfs, s3a, abfss, gs ..

    As `LocalFiles`, with the same methods.

    Raises:
        CatalogError: they do not reach it.
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
        """Names in a folder; none if the folder is missing."""
        try:
            found = self._files.listStatus(self._path(folder))
        except Exception as error:
            if "FileNotFoundException" in str(error):
                return []
            raise _cannot("read", f"{self.place}/{folder}", _reason(error)) from None
        return [str(status.getPath().getName()) for status in found]

    def read(self, path: str) -> bytes | None:
        """Content of a file; None if it is missing."""
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
        """Bytes of a file; None if it is missing or not a file."""
        try:
            found = self._files.getFileStatus(self._path(path))
            return int(found.getLen()) if found.isFile() else None
        except Exception as error:
            if "FileNotFoundException" in str(error):
                return None
            raise _cannot("read", f"{self.place}/{path}", _reason(error)) from None

    def add(self, path: str, content: bytes) -> bool:
        """Add a complete file; False if it exists. Renaming fails if it exists."""
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
        """Remove a file, if it is there."""
        try:
            self._files.delete(self._path(path), False)
        except Exception as error:
            raise _cannot("remove", f"{self.place}/{path}", _reason(error)) from None

    def _path(self, path: str) -> Any:
        return self._hadoop.Path(f"{self.place}/{path}")


Files = LocalFiles | HadoopFiles


def files_of(folder: str, spark: SparkSession) -> Files:
    """The files below a path or URI."""
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
    """Open a file without waiting for the writer of a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _cannot(what: str, place: str, why: str | None) -> CatalogError:
    return CatalogError(
        f"cannot {what} {place}: {why}; choose another place (for models: sqlml.attach(spark, "
        "catalog=..))"
    )


def _reason(error: Exception) -> str:
    """What Java says, without its trace."""
    cause = getattr(error, "java_exception", None)
    return str(cause.getMessage() if cause is not None else error).splitlines()[0]
