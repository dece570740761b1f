"""How long an iteration waits for its input: the time within ``next()`` of the iterators that its schedule gets.

Iterators of known types are replaced for the time of that call. Megatron's own, which can replay an iteration, stays
itself, and what it draws from is replaced: a replay waits for nothing. The wait for others is unknown.
"""

from collections.abc import Callable, Iterator, Mapping
from time import monotonic_ns
from typing import Any

_ARGUMENT = "data_iterator"
_REPLAYING = ("megatron.core.rerun_state_machine", "RerunDataIterator")
_SOURCE = "iterable"  # its attribute, which it does nothing with but next()
_MODULES = frozenset({"builtins", "itertools", "torch.utils.data.dataloader"})  # generators are of the first


class InputWait:
    """The wait of one rank, iteration by iteration."""

    def __init__(self) -> None:
        self._wait_ns: int | None = None
        self._replaced: list[tuple[dict[str, Any], TimedIterator]] = []

    @property
    def wait_ns(self) -> int | None:
        """[ns] in the newest iteration; None where it has no iterator, or one of a type that is not known."""
        return self._wait_ns

    def time(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        """An iteration begins, whose schedule is called with these arguments by name.

        Returns:
            The arguments to call it with. ``put_back`` afterwards, whatever happened.
        """
        given = call.get(_ARGUMENT)
        iterators = given if isinstance(given, list) else [given]
        is_known = all(iterator is None or _is_known(iterator) for iterator in iterators)
        if not is_known or not any(iterator is not None for iterator in iterators):
            self._wait_ns = None
            return call
        self._wait_ns = 0
        timed = [None if iterator is None else self._timed(iterator) for iterator in iterators]
        return {**call, _ARGUMENT: timed if isinstance(given, list) else timed[0]}

    def put_back(self) -> None:
        """Leave Megatron's iterators as they were found. A second call changes nothing."""
        for attributes, timed in self._replaced:
            if attributes.get(_SOURCE) is timed:
                attributes[_SOURCE] = timed.timed
        self._replaced.clear()

    def _timed(self, iterator: Any) -> Any:
        if not _is_replaying(iterator):
            return (TimedSizedIterator if hasattr(iterator, "__len__") else TimedIterator)(iterator, self._add)
        attributes = vars(iterator)
        source = attributes[_SOURCE]
        if type(source) is not TimedIterator:  # chunks may share it
            attributes[_SOURCE] = timed = TimedIterator(source, self._add)
            self._replaced.append((attributes, timed))
        return iterator

    def _add(self, num_ns: int) -> None:
        self._wait_ns = num_ns + (self._wait_ns or 0)


class TimedIterator:
    """An iterator, and the time within it.

    Attributes:
        timed: The iterator, whose attributes and type this one passes off as its own.
    """

    def __init__(self, timed: Any, add: Callable[[int], None]) -> None:
        """Args: timed: the iterator; add: gets the time [ns] of each call."""
        self.timed = timed
        self._add = add

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.timed)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        began_ns = monotonic_ns()
        try:
            return next(self.timed)
        finally:
            self._add(monotonic_ns() - began_ns)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.timed, name)


class TimedSizedIterator(TimedIterator):
    """A timed iterator with a length."""

    def __len__(self) -> int:
        return len(self.timed)


def _is_known(iterator: Any) -> bool:
    kind = type(iterator)
    return _is_replaying(iterator) or (kind.__module__ in _MODULES and hasattr(kind, "__next__"))


def _is_replaying(iterator: Any) -> bool:
    kind = type(iterator)
    return (kind.__module__, kind.__qualname__) == _REPLAYING and _SOURCE in getattr(iterator, "__dict__", ())
