"""Acting as a user who may not look into folders of the tests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NOBODY = 65534


@contextmanager
def another_user() -> Iterator[None]:
    """As root, act as a user without rights; such a user stays who it is."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(own)
