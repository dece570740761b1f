"""A function of an object, replaced for a while and put back exactly."""

import functools
from collections.abc import Callable
from typing import Any

_ABSENT = object()


def replace_function(owner: Any, name: str, run: Callable[[Callable[[], Any]], Any]) -> Callable[[], None]:
    """Have ``owner.name(...)`` run by another function.

    Only the object's own dictionary is touched, which comes before its class. It need not have such a function.

    Args:
        owner: The object.
        name: The attribute that holds the function.
        run: Gets the call, and returns what it returns.

    Returns:
        A function that restores the attribute, unless it was replaced again meanwhile.
    """
    function = getattr(owner, name, None)
    if function is None or not hasattr(owner, "__dict__"):
        return _do_nothing
    attributes = owner.__dict__
    found = attributes.get(name, _ABSENT)

    @functools.wraps(function, updated=())
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return run(functools.partial(function, *args, **kwargs))

    def put_back() -> None:
        if attributes.get(name) is not replacement:
            return
        if found is _ABSENT:
            del attributes[name]
        else:
            attributes[name] = found

    attributes[name] = replacement
    return put_back


def _do_nothing() -> None:
    pass
