"""Every argument of every command, given something that it is not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from malformed.case import Case
from malformed.hostile import fraction, no_number, outside, word
from malformed.rows import OPTIONS

Wrong = Callable[[Random], str]
_PROBLEM = ("profile.csv", *OPTIONS)
_PLANNER = ("--planner", "127.0.0.1:1")
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
    "policy set": ("hall", *_PLANNER),
    "policy load-target": ("hall", "--name", "a", "--watts", "5000", "--start", _MOMENT, "--end", _LATER, *_PLANNER),
    "policy show": _PLANNER,
    "policy clear": ("hall", *_PLANNER),
    "policy price": (
        *("cheap", "--job", "gpt", "--signal", "day.csv", "--deadline", _MOMENT, "--iterations", "10"),
        *_PLANNER,
    ),
    "planner": ("--state-dir", "new"),
    "state backup": ("backup.sqlite", "--state-dir", "state"),
    "state restore": ("backup.sqlite", "--state-dir", "new"),
    "state check": ("backup.sqlite",),
    "jobs": _PLANNER,
    "watch": ("gpt", *_PLANNER),
    "target": ("gpt", "--slowdown", "1.05", *_PLANNER),
    "straggler report": ("gpt", "--id", "a", "--pipeline", "1", "--degree", "1.2", *_PLANNER),
    "straggler clear": ("gpt", "--id", "a", *_PLANNER),
    "fetch": ("gpt", "--profile", "fetched.csv", *_PLANNER),
    "clockd": ("--socket", "clockd.sock", "--lease-dir", "leases"),
    "node-relay": ("--planner", "127.0.0.1:1", "--socket", "relay/relay.sock"),
    "planning-worker": ("--store", "postgresql://u@127.0.0.1:1/d"),
    "release": ("--lease-dir", "leases"),
    "doctor": _PLANNER,
    "token create": ("ci", "--role", "view", *_PLANNER),
    "token list": _PLANNER,
    "token revoke": ("ci", *_PLANNER),
    "audit": _PLANNER,
    "health": (),
    "enable": ("deepspeed",),
    "disable": ("deepspeed",),
    "report": ("run",),
    "accounting": ("--records", "run"),
    "quickstart": ("--examples", "examples", "--gpu", "a100"),
    "sim": ("--", "true"),
    "simulate": ("--virtual-time", *OPTIONS[:6], "--iterations", "2"),
    "config": (),
    "completion": ("bash",),
}


def whole(low: int, high: int, good: str = "12") -> Wrong:
    """No whole number from ``low`` to ``high``."""
    return lambda rng: rng.choice(
        (no_number(rng, good), outside(rng, low, high, whole=True), fraction(rng), f"{good}e0", f"+{good}", f" {good}")
    )


def real(low: float, high: float, *, takes_low: bool = False, good: str = "1.05") -> Wrong:
    """No number from ``low`` to ``high``."""
    return lambda rng: rng.choice((no_number(rng, good), outside(rng, low, high, takes_low=takes_low), f" {good}"))


def among(*words: str) -> Wrong:
    """None of these words."""
    return lambda rng: rng.choice(
        ("", word(rng), rng.choice(words).upper(), f" {words[0]}", f"{words[-1]},", words[0][:-1])
    )


def source(rng: Random) -> str:
    """No file that can be read: missing, a folder, endless, too long, or no name."""
    names = ("", f"missing-{word(rng)}", "folder", "x" * 300, "folder/" * 900 + "x", "profile.csv/x", "\udcff\udcfe")
    return rng.choice(
        (*names, f"{word(rng)}/{word(rng)}", f"dangling-{word(rng)}\nx", f"{word(rng)}.csv", "loop", "secret")
    )


def no_folder(rng: Random) -> str:
    """No folder that can be read."""
    while (found := source(rng)) == "folder":
        pass
    return found


def place(rng: Random) -> str:
    """No place that can be written to."""
    return rng.choice(
        ("", "profile.csv/x", "x" * 300, f"profile.csv/{word(rng)}/x", "/proc/new/x", f"/proc/{word(rng)}")
    )


def below_file(rng: Random) -> str:
    """No folder, and none can be made there."""
    return rng.choice(("profile.csv", "profile.csv/x", f"profile.csv/{word(rng)}/x"))


def pattern(rng: Random) -> str:
    """No pattern of jobs' names."""
    return rng.choice(("", " ", "a b", "g/t", "x" * 129, "\u00e4", "[ab]", "a,b", "{}", "%s"))


def duration(rng: Random) -> str:
    """No length of time."""
    return rng.choice(
        ("", "0d", "-1d", "1", "1.5h", "d", "1y", "1 d", "99999999d", "1e3s", "\u0661d", "40000d", word(rng))
    )


def job(rng: Random) -> str:
    """No name of a job."""
    return rng.choice(
        (
            "",
            " ",
            "a b",
            "g/t",
            "x" * 129,
            "\u00e4",
            "a\nb",
            "a:b",
            "%s",
            "{}",
            "*",
            f"{word(rng)}\u6f22",
            f"{word(rng)}/",
            "\udcff",
        )
    )


def powers(rng: Random) -> str:
    """No blocking powers of a pipeline of two."""
    one = real(0, 10_000, takes_low=True, good="83.64")
    return rng.choice(
        (
            one(rng),
            f"80,{one(rng)}",
            "80,80,80",
            "80,",
            ",80",
            "80;80",
            "80 80",
            "0.00008",
            "8e-05",
            "83640000",
            "0.08,0.08",
        )
    )


def throttle(rng: Random) -> str:
    """No throttle of a single GPU."""
    wrong = (
        "",
        "0:1005",
        "0@3",
        ":1005@3",
        "0:none",
        "0:none@",
        "0:none@-1",
        "0:1005@nan",
        "0:1005@1e400",
        "0:x@3",
        "1:1005@3",
    )
    number = no_number(rng, "75").replace(" ", "_")
    return rng.choice(
        (
            *wrong,
            f"{number}:1005@3",
            f"0:{number}@3",
            f"0:1005@{number}",
            f"0:{rng.randrange(1, 100)}@3",
            "0:1005@3 ",
            word(rng),
        )
    )


def target(rng: Random) -> str:
    """No target of a job."""
    number = real(0, 1e5)(rng)
    return rng.choice(
        (
            "",
            "T_MIN",
            "slowdown",
            "slowdown=",
            "slowdown=0.5",
            "slowdown=nan",
            "deadline_s=0",
            "deadline_s=-1",
            word(rng),
        )
        + ((f"slowdown={number}", f"deadline_s={number}") if not number.startswith("0.") else ())
    )


def address(rng: Random) -> str:
    """No HOST:PORT that a planner could listen on."""
    port = whole(0, 65_535, good="50151")(rng)
    return rng.choice(
        (
            "",
            ":",
            "127.0.0.1",
            "127.0.0.1:",
            ":1:2:3",
            "[::1",
            f"127.0.0.1:{port}",
            f"[::1]:{port}",
            "a b:1",
            "\u0663:1",
        )
    )


def store_url(rng: Random) -> str:
    """No URL of a PostgreSQL database without a password."""
    port = whole(0, 65_535, good="5432")(rng)
    return rng.choice(
        (
            "",
            "postgresql:",
            "postgresql",
            "sqlite:///planner.sqlite",
            "postgresql://user:secret@127.0.0.1/d",
            "postgresql://127.0.0.1/d?password=secret",
            "postgresql://127.0.0.1/d?nosuch=1",
            "postgresql://[::1/d",
            "postgresql://%zz@127.0.0.1/d",
            f"postgresql://127.0.0.1:{port}x/d",
            f"{word(rng)}://127.0.0.1/d",
            word(rng),
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument.

    Attributes:
        commands: Those that have it.
        name: As messages have it: the option, or the placeholder of a positional one.
        wrong: Draws what it is not.
        beside: Further words that it needs.
        instead_of: Position of a positional argument among the command's; -1 for an option.
    """

    commands: tuple[str, ...]
    name: str
    wrong: Wrong
    beside: tuple[str, ...] = ()
    instead_of: int = -1


_PROBLEMS = ("plan", "compare", "emulate")
_SCHEDULES = (*_PROBLEMS, "schedule", "simulate")
_OF_JOBS = ("watch", "target", "straggler report", "straggler clear", "fetch")
_BUDGETS = ("policy set", "policy load-target", "policy price", "policy show", "policy clear")
_CALLERS = ("jobs", *_OF_JOBS, "token create", "token list", "token revoke", "audit", *_BUDGETS)
ARGUMENTS = (
    Argument(commands=_PROBLEMS, name="PROFILE.csv", wrong=source, instead_of=0),
    Argument(commands=("profile show",), name="PROFILE.csv", wrong=source, instead_of=0),
    Argument(commands=_SCHEDULES, name="--schedule", wrong=among("1f1b", "gpipe", "interleaved")),
    Argument(commands=_SCHEDULES, name="--schedule-file", wrong=source),
    Argument(commands=_SCHEDULES, name="--pp", wrong=whole(1, 999_999_999, "2")),
    Argument(commands=_SCHEDULES, name="--microbatches", wrong=whole(1, 999_999_999, "4")),
    Argument(commands=_SCHEDULES, name="--chunks", wrong=whole(1, 999_999_999, "2")),
    Argument(commands=_SCHEDULES, name="--microbatch-group-size", wrong=whole(1, 999_999_999, "2")),
    Argument(commands=_PROBLEMS, name="--blocking-power-w", wrong=powers),
    Argument(commands=("profile show",), name="--blocking-power-w", wrong=powers),
    Argument(commands=_PROBLEMS, name="--tensor-parallel", wrong=whole(1, 999_999_999, "2")),
    Argument(commands=_PROBLEMS, name="--switch-latency-ms", wrong=real(0, 10_000, takes_low=True, good="12")),
    Argument(commands=("profile show",), name="--stage", wrong=whole(0, 1, "1")),
    Argument(
        commands=("profile show",), name="--out", wrong=lambda rng: rng.choice((place(rng), "x.pdf", "x", ".svg/"))
    ),
    Argument(commands=("plan", "compare", "lookup"), name="--slowdown", wrong=real(0, 1e5)),
    Argument(commands=("plan", "compare", "lookup"), name="--deadline-s", wrong=real(0, 1e5)),
    Argument(commands=("lookup",), name="--straggler-s", wrong=real(0, 1e5)),
    Argument(commands=("plan", "lookup"), name="--out", wrong=place),
    Argument(commands=("lookup",), name="FRONTIER.npz", wrong=source, instead_of=0),
    Argument(commands=("emulate",), name="--pipelines", wrong=whole(1, 999_999_999, "4")),
    Argument(commands=("emulate",), name="--straggler", wrong=real(1, 1000, takes_low=True)),
    Argument(commands=("policy share", "policy pace", "policy simulate"), name="JOB", wrong=source, instead_of=0),
    Argument(commands=("policy share", "policy simulate"), name="--watts", wrong=real(1e-3, 1e12, takes_low=True)),
    Argument(commands=("policy share",), name="--objective", wrong=among("total", "max-min")),
    Argument(commands=("policy share", "policy simulate"), name="--guard-band", wrong=real(0, 0.99, takes_low=True)),
    Argument(commands=("policy pace", "policy simulate"), name="--signal", wrong=source),
    Argument(commands=("policy simulate",), name="--load-targets", wrong=source),
    Argument(commands=("policy pace", "policy simulate"), name="--iterations", wrong=real(1e-3, 1e12, takes_low=True)),
    Argument(commands=("policy pace", "policy simulate"), name="--hours", wrong=real(1e-3, 8784, takes_low=True)),
    Argument(
        commands=("policy pace", "policy simulate"), name="--start", wrong=lambda rng: no_number(rng, "2026-11-24")
    ),
    Argument(commands=("policy set", "policy clear", "policy price"), name="NAME", wrong=job, instead_of=0),
    Argument(commands=("policy load-target",), name="BUDGET", wrong=job, instead_of=0),
    Argument(commands=("policy load-target",), name="--name", wrong=job),
    Argument(commands=("policy clear",), name="--load-target", wrong=job),
    Argument(commands=("policy set", "policy load-target"), name="--watts", wrong=real(1e-3, 1e12, takes_low=True)),
    Argument(commands=("policy set",), name="--job", wrong=pattern),
    Argument(commands=("policy set",), name="--objective", wrong=among("total", "max-min")),
    Argument(commands=("policy set",), name="--guard-band", wrong=real(0, 0.99, takes_low=True)),
    Argument(commands=("policy set",), name="--weight", wrong=lambda rng: f"*={outside(rng, 1e-6, 1e6)}"),
    Argument(commands=("policy set",), name="--max-slowdown", wrong=lambda rng: f"*={outside(rng, 1, 1e6)}"),
    Argument(commands=("policy load-target",), name="--start", wrong=lambda rng: no_number(rng, "2026-11-24")),
    Argument(commands=("policy load-target",), name="--end", wrong=lambda rng: no_number(rng, "2026-11-24")),
    Argument(commands=("policy load-target",), name="--file", wrong=source),
    Argument(commands=("policy price",), name="--job", wrong=job),
    Argument(commands=("policy price",), name="--deadline", wrong=lambda rng: no_number(rng, "2026-11-24")),
    Argument(commands=("policy price",), name="--iterations", wrong=whole(1, 10**12)),
    Argument(commands=("planner",), name="--signals", wrong=no_folder),
    Argument(commands=("planner",), name="--bind", wrong=address),
    Argument(commands=("planner",), name="--metrics", wrong=address),
    Argument(
        commands=("planner",),
        name="--metrics-tls-cert",
        wrong=source,
        beside=("--metrics-tls-key", "profile.csv", "--metrics", "127.0.0.1:0"),
    ),
    Argument(
        commands=("planner",),
        name="--metrics-tls-key",
        wrong=source,
        beside=("--metrics-tls-cert", "profile.csv", "--metrics", "127.0.0.1:0"),
    ),
    Argument(commands=("planner",), name="--metrics-password-file", wrong=source, beside=("--metrics", "127.0.0.1:0")),
    Argument(commands=("planner",), name="--web", wrong=address),
    Argument(commands=("planner",), name="--metrics-port", wrong=whole(0, 65_535, "9000")),
    Argument(
        commands=("planner", "planning-worker", "clockd", "node-relay"),
        name="--log-format",
        wrong=among("text", "json"),
    ),
    Argument(commands=("planner",), name="--stragglers", wrong=among("act", "show")),
    Argument(commands=("planner",), name="--state-dir", wrong=place),
    Argument(commands=("planner", "planning-worker"), name="--store", wrong=store_url),
    Argument(commands=("planning-worker",), name="--store-password-file", wrong=source),
    Argument(commands=("planning-worker",), name="--workers", wrong=whole(1, 256, "2")),
    Argument(
        commands=("planning-worker",),
        name="--alive-file",
        wrong=place,
        beside=("--store", "postgresql://u@127.0.0.1:1/d"),
    ),
    Argument(
        commands=("planner",),
        name="--store-password-file",
        wrong=source,
        beside=("--store", "postgresql://u@127.0.0.1:1/d"),
    ),
    Argument(
        commands=("state backup",),
        name="FILE",
        wrong=lambda rng: rng.choice(("", "profile.csv/x", "x" * 300, "folder", f"{word(rng)}/x")),
        instead_of=0,
    ),
    Argument(commands=("state restore", "state check"), name="FILE", wrong=source, instead_of=0),
    Argument(commands=("planner",), name="--tls-cert", wrong=source, beside=("--tls-key", "profile.csv")),
    Argument(commands=("planner",), name="--tls-key", wrong=source, beside=("--tls-cert", "profile.csv")),
    Argument(commands=("planner",), name="--tls-client-ca", wrong=source),
    Argument(commands=("planner",), name="--address-file", wrong=place, beside=("--embedded",)),
    Argument(commands=_OF_JOBS, name="JOB", wrong=job, instead_of=0),
    Argument(commands=_CALLERS, name="--token-file", wrong=source),
    Argument(commands=_CALLERS, name="--tls-ca", wrong=source),
    Argument(commands=_CALLERS, name="--tls-cert", wrong=source, beside=("--tls-key", "profile.csv")),
    Argument(commands=_CALLERS, name="--tls-key", wrong=source, beside=("--tls-cert", "profile.csv")),
    Argument(commands=("target",), name="--slowdown", wrong=lambda rng: no_number(rng, "1.05")),
    Argument(commands=("target",), name="--deadline-s", wrong=lambda rng: no_number(rng, "2.5")),
    Argument(commands=("straggler report", "straggler clear"), name="--id", wrong=job),
    Argument(commands=("straggler report",), name="--pipeline", wrong=whole(0, 2**20 - 1, "1")),
    Argument(commands=("straggler report",), name="--degree", wrong=lambda rng: no_number(rng, "1.25")),
    Argument(commands=("token create", "token revoke"), name="NAME", wrong=job, instead_of=0),
    Argument(commands=("token create",), name="--role", wrong=among("view", "operate", "admin")),
    Argument(commands=("token create",), name="--job", wrong=pattern),
    Argument(commands=("token create",), name="--expires", wrong=duration),
    Argument(commands=("token create",), name="--out", wrong=place),
    Argument(commands=("audit",), name="--job", wrong=job),
    Argument(commands=("audit",), name="--since", wrong=duration),
    Argument(commands=("fetch",), name="--profile", wrong=lambda _: ""),
    Argument(commands=("fetch",), name="--frontier", wrong=lambda _: ""),
    Argument(commands=("clockd",), name="--lease-s", wrong=real(0.1, 60, takes_low=True, good="10")),
    Argument(commands=("clockd",), name="--min-mhz", wrong=whole(1, 100_000, "900")),
    Argument(commands=("clockd",), name="--max-mhz", wrong=whole(1, 100_000, "900")),
    Argument(commands=("clockd",), name="--group", wrong=lambda _: ""),
    Argument(commands=("clockd",), name="--socket", wrong=lambda _: ""),
    Argument(commands=("clockd",), name="--lease-dir", wrong=below_file),
    Argument(commands=("disable",), name="--shim", wrong=below_file),
    Argument(commands=("planner",), name="--job", wrong=lambda rng: rng.choice(("a b", "g/t", word(rng)))),
    Argument(commands=("release",), name="--lease-dir", wrong=place),
    Argument(commands=("release",), name="GPU", wrong=lambda _: "", instead_of=2),
    Argument(commands=("doctor",), name="--metrics", wrong=place),
    Argument(commands=("doctor",), name="--planner", wrong=lambda _: ""),
    Argument(
        commands=("health", "node-relay"),
        name="--planner",
        wrong=lambda rng: rng.choice(("", "h", "h:", ":1", "h:0", "h:65536", "h:x", "h:-1", "h:\u0663", "h: 1")),
    ),
    Argument(commands=("node-relay",), name="--group", wrong=lambda _: ""),
    Argument(commands=("node-relay",), name="--socket", wrong=lambda _: ""),
    Argument(commands=("health",), name="--clockd", wrong=lambda _: ""),
    Argument(commands=("health",), name="--planning-worker", wrong=lambda _: ""),
    Argument(commands=("health",), name="--timeout-s", wrong=real(0.1, 60, takes_low=True, good="3")),
    Argument(commands=("health", "node-relay"), name="--tls-ca", wrong=source),
    Argument(commands=("health", "node-relay"), name="--tls-cert", wrong=source, beside=("--tls-key", "profile.csv")),
    Argument(commands=("health", "node-relay"), name="--tls-key", wrong=source, beside=("--tls-cert", "profile.csv")),
    Argument(commands=("health",), name="--tls-server-name", wrong=lambda _: "", beside=("--tls",)),
    Argument(commands=("enable", "disable"), name="framework", wrong=among("deepspeed", "megatron"), instead_of=0),
    Argument(commands=("enable",), name="--shim", wrong=place),
    Argument(
        commands=("report",),
        name="DIR",
        wrong=lambda rng: rng.choice(("", word(rng), "folder", "profile.csv")),
        instead_of=0,
    ),
    Argument(commands=("report",), name="--losses", wrong=source, beside=("--reference-losses", "losses.jsonl")),
    Argument(commands=("report",), name="--reference-losses", wrong=source, beside=("--losses", "losses.jsonl")),
    Argument(commands=("report",), name="--clocks-left-locked", wrong=whole(0, 10**9, "1")),
    Argument(commands=("accounting",), name="--since", wrong=lambda rng: rng.choice(("", word(rng), "7 d", "-1d"))),
    Argument(commands=("accounting",), name="--until", wrong=lambda rng: rng.choice(("", word(rng), "2026-13-01"))),
    Argument(commands=("accounting",), name="--by", wrong=among("user", "project", "job")),
    Argument(commands=("accounting",), name="--records", wrong=lambda rng: rng.choice((word(rng), "profile.csv"))),
    Argument(commands=("accounting",), name="--finish", wrong=lambda rng: rng.choice((word(rng), "profile.csv"))),
    Argument(commands=("quickstart",), name="--stages", wrong=whole(1, 999_999_999, "4")),
    Argument(commands=("quickstart",), name="--pipelines", wrong=whole(1, 999_999_999, "4")),
    Argument(commands=("quickstart",), name="--steps", wrong=whole(1, 999_999_999, "60")),
    Argument(commands=("quickstart", "sim", "simulate"), name="--gpu", wrong=among("a100", "h100")),
    Argument(commands=("quickstart",), name="--out", wrong=place),
    Argument(commands=("quickstart",), name="--examples", wrong=lambda rng: rng.choice(("", word(rng)))),
    Argument(commands=("sim",), name="--count", wrong=whole(1, 64, "2")),
    Argument(commands=("sim",), name="--forward-ms", wrong=real(0, 1e8), beside=("--backward-ms", "65")),
    Argument(commands=("sim",), name="--backward-ms", wrong=real(0, 1e8), beside=("--forward-ms", "35")),
    Argument(
        commands=("sim",),
        name="--transfer-ms",
        wrong=real(0, 1e8),
        beside=("--forward-ms", "3", "--backward-ms", "6"),
    ),
    Argument(
        commands=("sim",),
        name="--step-ms",
        wrong=real(0, 1e8, takes_low=True),
        beside=("--forward-ms", "3", "--backward-ms", "6"),
    ),
    Argument(
        commands=("sim",),
        name="--imbalance",
        wrong=real(-0.99, 10, takes_low=True),
        beside=("--forward-ms", "3", "--backward-ms", "6"),
    ),
    Argument(commands=("sim",), name="--throttle", wrong=throttle),
    Argument(commands=("simulate",), name="--scenario", wrong=source),
    Argument(
        commands=("simulate",),
        name="--chaos",
        wrong=lambda rng: rng.choice((no_number(rng, "7"), "5-1", "-1", "1-", "0-1-2", "0-99999999", word(rng))),
    ),
    Argument(commands=("simulate",), name="--known-failures", wrong=source, beside=("--chaos", "0-1")),
    Argument(commands=("simulate",), name="--dp", wrong=whole(1, 999_999_999, "2")),
    Argument(commands=("simulate",), name="--iterations", wrong=whole(1, 999_999_999, "80")),
    Argument(commands=("simulate",), name="--imbalance", wrong=real(0, 10, takes_low=True)),
    Argument(commands=("simulate",), name="--target", wrong=target),
    Argument(commands=("simulate",), name="--profile", wrong=source),
    Argument(commands=("simulate",), name="--processes", wrong=whole(1, 999_999_999, "2"), beside=("--chaos", "0-1")),
    Argument(commands=("simulate",), name="--log-dir", wrong=lambda _: ""),
    Argument(commands=("config",), name="--check", wrong=source),
    Argument(commands=("completion",), name="shell", wrong=among("bash", "zsh", "fish"), instead_of=0),
)
_SOURCES = {"--schedule-file", "--scenario", "--chaos"}


def bad_argument(rng: Random) -> Case:
    """One command line with one wrong argument."""
    argument = rng.choice(ARGUMENTS)
    command = rng.choice(argument.commands)
    wrong, words = argument.wrong(rng), list(BASE[command])
    named = [argument.name, *([wrong] if len(wrong) > 1 else [])]
    if argument.instead_of >= 0:
        words[argument.instead_of : argument.instead_of + 1] = ["--", wrong] if wrong.startswith("-") else [wrong]
        if "--" in words:  # positional arguments come last
            words = [*words[argument.instead_of + 2 :], "--", wrong]
        return Case(kind=f"argument {command}", argv=(*command.split(), *words), named=tuple(named))
    if argument.name in _SOURCES or argument.beside[:1] == ("--chaos",):
        at = words.index(OPTIONS[0])
        del words[at : at + 6]
        if command == "simulate":
            words = ["--virtual-time"]
    for option in ("--slowdown", "--out", argument.name):  # one deadline, one value
        if option in words and option in (
            argument.name,
            "--slowdown" if argument.name in ("--deadline-s", "--straggler-s") else "",
        ):
            at = words.index(option)
            del words[at : at + 2]
    given = [f"{argument.name}={wrong}"] if wrong.startswith("-") or rng.random() < 0.5 else [argument.name, wrong]
    return Case(
        kind=f"argument {command}", argv=(*command.split(), *given, *argument.beside, *words), named=tuple(named)
    )
