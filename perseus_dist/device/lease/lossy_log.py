"""A log that holds nothing up: where standard error takes no more, as a full pipe does, lines are dropped.

A thread that writes to such a pipe waits until somebody reads it, perhaps for ever, and would owe a restore meanwhile.
"""

import logging
import os
import queue
import sys
import threading
from contextlib import suppress

_MAX_WAITING = 1000
_LAST_WORDS_S = 1.0


class LossyHandler(logging.Handler):
    """Writes lines to standard error from a thread of its own. To be made after the process has forked."""

    def __init__(self) -> None:
        """Begin; a process without standard error writes nothing."""
        super().__init__()
        # Its number, and not the stream, whose lock would be waited for as the process ends.
        self._descriptor: int | None = None
        with suppress(AttributeError, OSError):  # it is closed, or no file
            self._descriptor = sys.stderr.fileno()
        self._lines: queue.Queue[bytes] = queue.Queue(_MAX_WAITING)
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a line on to the thread, as long as not too many wait."""
        try:
            self._lines.put_nowait(f"{self.format(record)}\n".encode(errors="backslashreplace"))
        except queue.Full:
            pass
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait for what was said, a second at most; called as the process ends."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, _LAST_WORDS_S)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            try:
                while line and self._descriptor is not None:
                    line = line[os.write(self._descriptor, line) :]
            except OSError:  # no process reads any more, or the disk is full
                pass
            finally:
                self._lines.task_done()
