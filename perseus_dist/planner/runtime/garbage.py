"""Keeps Python's cyclic garbage collector from stopping the planner for long.

A collection of the oldest generation looks at every object that lives: with ten thousand ranks that takes 0.3 to 0.45 s
of processor time, in which no switch is sent, and was a quarter of all that the planner spent. What lives for a second
mostly lives on, so it is taken out of the collector's sight. Cycles that die there are looked for now and then.
"""

import asyncio
import gc

PERIOD_S = 1.0
FULL_PERIOD_S = 600.0
YOUNG_OBJECTS = 10_000
"""Python's 700 would be a collection for each handful of messages."""


async def keep_collections_short() -> None:
    """Collect young objects often and old ones rarely, until cancelled."""
    loop = asyncio.get_running_loop()
    full_s = loop.time() + FULL_PERIOD_S
    usual = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, *usual[1:])
    try:
        while True:
            await asyncio.sleep(PERIOD_S)
            if loop.time() >= full_s:
                gc.unfreeze()
                gc.collect()
                full_s = loop.time() + FULL_PERIOD_S
            gc.freeze()
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
