"""A file mapped into memory that keeps no descriptor open, and that can be unmapped in part.

``mmap.mmap`` duplicates the descriptor and holds it until all is unmapped. What a device may write to never is.
"""

import ctypes
import mmap
import os
from ctypes import c_int, c_long, c_size_t, c_ubyte, c_void_p

_FAILED = c_void_p(-1).value


class SharedMapping:
    """The first bytes of a file, shared with other processes that map it.

    Args:
        fd: Of the file; may be closed at once.
        num_bytes: From the start of the file; whole pages.

    Attributes:
        address: Of the first byte.
        memory: Its bytes, until ``close``; later any use of them raises ValueError.

    Raises:
        OSError: It cannot be mapped.
    """

    def __init__(self, fd: int, num_bytes: int) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        library.mmap.argtypes = [c_void_p, c_size_t, c_int, c_int, c_int, c_long]
        library.mmap.restype = c_void_p
        library.munmap.argtypes = [c_void_p, c_size_t]
        address = library.mmap(None, num_bytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
        if address is None or address == _FAILED:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        self.address: int = address
        self.memory = memoryview((c_ubyte * num_bytes).from_address(address)).cast("B")
        self._num_bytes = num_bytes
        self._unmap = library.munmap

    def close(self, *, num_kept: int = 0) -> None:
        """Unmap it.

        Args:
            num_kept: Bytes at the start, whole pages, that stay mapped until the process ends.
        """
        self.memory.release()
        self._unmap(self.address + num_kept, self._num_bytes - num_kept)
