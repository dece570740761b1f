"""The key of a fact, by which a later one replaces it, and the name of its kind in databases."""

from typing import ClassVar


class KeyedFact:
    """A fact; ``KEY`` is a format string of its fields, ``KIND`` its name in databases if not the class's."""

    __slots__ = ()
    KEY: ClassVar[str]
    KIND: ClassVar[str] = ""

    @classmethod
    def kind(cls) -> str:
        """The name of this class's facts in databases."""
        return cls.KIND or cls.__name__

    @property
    def key(self) -> str:
        """A later fact of the same key replaces this one."""
        return self.KEY.format(self)
