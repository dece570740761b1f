"""A command line of each command that would be taken, but for files and planners that are not there."""

from collections.abc import Mapping

from malformed.rows import OPTIONS

_PROBLEM = ("profile.csv", *OPTIONS)
PLANNER = ("--planner", "127.0.0.1:1")
_MOMENT, _LATER = "2026-11-24T17:00:00-05:00", "2126-11-24T17:00:00-05:00"
BASE: Mapping[str, tuple[str, ...]] = {
    "schedule": OPTIONS[:6],
    "profile show": ("profile.csv",),
    "plan": (*_PROBLEM, "--out", "plans"),
    "lookup": ("good.npz", "--slowdown", "1.05"),
    "compare": _PROBLEM,
    "emulate": (*_PROBLEM, "--pipelines", "4"),
    "policy share": ("good.npz", "--watts", "5000"),
    "policy pace": ("good.npz", "--signal", "profile.csv", "--iterations", "10", "--hours", "1"),
    "policy simulate": ("good.npz", "--watts", "5000", "--iterations", "10", "--hours", "1"),
    "policy set": ("hall", *PLANNER),
    "policy load-target": ("hall", "--name", "a", "--watts", "5000", "--start", _MOMENT, "--end", _LATER, *PLANNER),
    "policy show": PLANNER,
    "policy clear": ("hall", *PLANNER),
    "policy price": (
        *("cheap", "--job", "gpt", "--signal", "day.csv", "--deadline", _MOMENT, "--iterations", "10"),
        *PLANNER,
    ),
    "planner": ("--state-dir", "new"),
    "state backup": ("backup.sqlite", "--state-dir", "state"),
    "state restore": ("backup.sqlite", "--state-dir", "new"),
    "state check": ("backup.sqlite",),
    "jobs": PLANNER,
    "watch": ("gpt", *PLANNER),
    "target": ("gpt", "--slowdown", "1.05", *PLANNER),
    "straggler report": ("gpt", "--id", "a", "--pipeline", "1", "--degree", "1.2", *PLANNER),
    "straggler clear": ("gpt", "--id", "a", *PLANNER),
    "fetch": ("gpt", "--profile", "fetched.csv", *PLANNER),
    "clockd": ("--socket", "clockd.sock", "--lease-dir", "leases"),
    "node-relay": ("--planner", "127.0.0.1:1", "--socket", "relay/relay.sock"),
    "planning-worker": ("--store", "postgresql://u@127.0.0.1:1/d"),
    "release": ("--lease-dir", "leases"),
    "doctor": PLANNER,
    "token create": ("ci", "--role", "view", *PLANNER),
    "token list": PLANNER,
    "token revoke": ("ci", *PLANNER),
    "audit": PLANNER,
    "health": (),
    "enable": ("deepspeed",),
    "disable": ("deepspeed",),
    "report": ("run",),
    "accounting": ("--records", "run"),
    "quickstart": ("--examples", "examples", "--gpu", "a100"),
    "measure": ("--out", "measured"),
    "sim": ("--", "true"),
    "simulate": ("--virtual-time", *OPTIONS[:6], "--iterations", "2"),
    "config": (),
    "completion": ("bash",),
}
