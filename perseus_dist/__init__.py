"""Perseus for Megatron-LM and DeepSpeed: the energy-optimal clock for every computation of a pipeline.

    >>> frontier = perseus_dist.plan(profile, schedule, blocking_power_w=80)
    >>> print(frontier.summary())
    4 pp_ranks, 8 microbatches
    ...
    >>> frontier.at(slowdown=1.05).save("plan.json")
    >>> frontier.plot().savefig("frontier.svg")

All names are imported when they are first used: trainers and agents, which import ``perseus_dist.hooks`` alone, need
the standard library and start at once. ``__init__.pyi`` has the types.
"""

_MODULE_OF = {
    "ArgumentError": "perseus_dist.errors",
    "ComparedPlan": "perseus_dist.library.comparison",
    "Comparison": "perseus_dist.library.comparison",
    "Emulation": "perseus_dist.library.emulation",
    "Frontier": "perseus_dist.library.frontier",
    "PerseusError": "perseus_dist.errors",
    "Plan": "perseus_dist.library.plan",
    "PlannedInstruction": "perseus_dist.library.plan",
    "Profile": "perseus_dist.library.profile",
    "Schedule": "perseus_dist.library.schedule",
    "StragglingJob": "perseus_dist.library.emulation",
    "UndisturbedJob": "perseus_dist.library.emulation",
    "compare": "perseus_dist.library.comparison",
    "emulate": "perseus_dist.library.emulation",
    "load_frontier": "perseus_dist.library.planning",
    "plan": "perseus_dist.library.planning",
    "read_profile": "perseus_dist.library.profile",
}

__all__ = ["__version__", *_MODULE_OF]  # noqa: PLE0604 - strings, all of them


def __getattr__(name: str) -> object:
    """A public name, imported when it is first used."""
    value: object
    if name == "__version__":
        from importlib.metadata import version

        value = version("perseus-dist")
    elif name in _MODULE_OF:
        from importlib import import_module

        value = getattr(import_module(_MODULE_OF[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, those that are not imported yet included."""
    return sorted({*globals(), *__all__})
