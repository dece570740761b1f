"""Standard output and standard error, where they may be closed, full, or without a reader."""

import codecs
import io
import os
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

_SLOTS = (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY))

_ESCAPING = "perseus-dist.escaping"  # of an encoding's errors, to all codecs of this process


class _Descriptor(io.FileIO):
    """Remembers the error of a write: argparse swallows it, and what did not fit into a buffer is lost with it."""

    error: OSError | None = None

    def write(self, data: "Buffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.error = error
            raise


def open_streams() -> None:
    """Make standard streams that can be printed to, and that ``write_error`` knows about.

    Closed ones are None in ``sys``: they get a descriptor, so that no file is opened in their place and no print fails
    oddly. What is printed to a closed standard output fails, as on a full disk; standard error is only lost. Characters
    that a stream's encoding does not have are written as escapes.
    """
    for name, mode, flags in _SLOTS:
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))
            setattr(sys, f"__{name}__", getattr(sys, name))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__") and not isinstance(_raw(stream), _Descriptor):
            setattr(sys, name, _rebuilt(stream))


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """The bytes of a name that the locale could not read, as they were; of what an encoding does not have an escape."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.backslashreplace_errors(error)


codecs.register_error(_ESCAPING, _escaped)


def _rebuilt(stream: Any) -> TextIO:
    """The same stream above a descriptor that remembers."""
    stream.flush()
    raw = _Descriptor(stream.fileno(), "w", closefd=False)
    is_unbuffered = isinstance(stream.buffer, io.RawIOBase)  # PYTHONUNBUFFERED
    return io.TextIOWrapper(
        cast("BinaryIO", raw) if is_unbuffered else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors if stream.errors == "backslashreplace" else _ESCAPING,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _raw(stream: TextIO) -> object:
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)


def write_error(stream: TextIO) -> OSError | None:
    """The error of a write to ``sys.stdout`` or ``sys.stderr``, if one has failed."""
    raw = _raw(stream)
    return raw.error if isinstance(raw, _Descriptor) else None


def discard_refused() -> None:
    """Let go what streams hold that could not be written: Python flushes once more at its end."""
    for stream in (sys.stdout, sys.stderr):
        if write_error(stream):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
