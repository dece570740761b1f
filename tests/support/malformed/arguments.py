"""Every argument of every command, given something that it is not."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from malformed.base_lines import BASE, PLANNER
from malformed.case import Case
from malformed.hostile import no_number, outside, word
from malformed.rows import OPTIONS
from malformed.wrong_values import (
    Wrong,
    address,
    advertised,
    among,
    below_file,
    common_name,
    duration,
    file_name,
    host,
    job,
    no_folder,
    no_program,
    pattern,
    place,
    planner_address,
    powers,
    real,
    rehearsal,
    report,
    source,
    store_url,
    target,
    throttle,
    whole,
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
        base: Words of the command, instead of those of ``BASE``.
    """

    commands: tuple[str, ...]
    name: str
    wrong: Wrong
    beside: tuple[str, ...] = ()
    instead_of: int = -1
    base: tuple[str, ...] | None = None


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
    Argument(commands=_PROBLEMS, name="--tensor-parallel", wrong=whole(1, 4_096, "2")),
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
    Argument(commands=("planner",), name="--parent", wrong=whole(1, 2**22, "2")),
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
    Argument(commands=("clockd",), name="--lease-s", wrong=real(0.5, 60, takes_low=True, good="10")),
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
    Argument(commands=("plan", "simulate"), name="--granularity", wrong=among("instruction", "phase", "rank")),
    Argument(commands=_CALLERS, name="--planner", wrong=planner_address),
    Argument(commands=("policy price",), name="--signal", wrong=file_name),
    Argument(
        commands=("planner",),
        name="--advertise",
        wrong=advertised,
        beside=("--store", "postgresql://u@127.0.0.1:1/d"),
    ),
    Argument(
        commands=("planner",),
        name="--cache",
        wrong=lambda _: "",
        beside=("--embedded", "--job", "gpt", "--address-file", "address.json"),
    ),
    Argument(
        commands=("planner",),
        name="--share",
        wrong=host,
        beside=("--embedded", "--address-file", "address.json", "--state-dir", "folder"),
        base=(),
    ),
    Argument(commands=("state backup",), name="--state-dir", wrong=source),
    Argument(commands=("state check",), name="--state-dir", wrong=source, base=()),
    Argument(commands=("state restore",), name="--state-dir", wrong=place, base=("good.sqlite",)),
    Argument(commands=("token create",), name="--certificate", wrong=common_name),
    Argument(commands=("doctor",), name="--token-file", wrong=source, base=()),
    Argument(commands=("doctor",), name="--tls-ca", wrong=source, base=()),
    Argument(commands=("doctor",), name="--tls-cert", wrong=source, beside=("--tls-key", "profile.csv"), base=()),
    Argument(commands=("doctor",), name="--tls-key", wrong=source, beside=("--tls-cert", "profile.csv"), base=()),
    Argument(commands=("accounting",), name="--line", wrong=report, base=()),
    Argument(commands=("measure",), name="--control", wrong=among("auto", "clockd", "zeusd", "direct")),
    Argument(commands=("measure",), name="--seconds", wrong=real(5, 3600, takes_low=True, good="150")),
    Argument(commands=("measure",), name="--layers", wrong=whole(1, 1024, "4")),
    Argument(commands=("measure",), name="--hidden", wrong=whole(1, 131_072, "4096")),
    Argument(
        commands=("measure",), name="--heads", wrong=lambda rng: rng.choice((whole(1, 1024, "32")(rng), "31", "1000"))
    ),
    Argument(commands=("measure",), name="--sequence-length", wrong=whole(1, 1 << 20, "2048")),
    Argument(commands=("measure",), name="--microbatch-size", wrong=whole(1, 4096, "2")),
    Argument(commands=("measure",), name="--pp", wrong=whole(2, 64, "8")),
    Argument(commands=("measure",), name="--microbatches", wrong=whole(1, 256, "32")),
    Argument(
        commands=("measure",),
        name="--out",
        wrong=lambda rng: rng.choice((below_file(rng), "", "x" * 300, "/proc/new/x")),
    ),
    Argument(commands=("sim",), name="COMMAND", wrong=no_program, instead_of=1),
    Argument(commands=("simulate",), name="--planner", wrong=planner_address, base=()),
    Argument(commands=("simulate",), name="--token-file", wrong=source, base=PLANNER),
    Argument(commands=("simulate",), name="--tls-ca", wrong=source, base=PLANNER),
    Argument(
        commands=("simulate",), name="--tls-cert", wrong=source, beside=("--tls-key", "profile.csv"), base=PLANNER
    ),
    Argument(
        commands=("simulate",), name="--tls-key", wrong=source, beside=("--tls-cert", "profile.csv"), base=PLANNER
    ),
    Argument(commands=("simulate",), name="--jobs", wrong=whole(1, 64, "3"), base=PLANNER),
    Argument(commands=("simulate",), name="--nodes", wrong=whole(1, 64, "4"), base=PLANNER),
    Argument(commands=("simulate",), name="--job", wrong=rehearsal, base=PLANNER),
)
_SOURCES = {"--schedule-file", "--scenario", "--chaos"}


def pairs() -> Iterator[tuple[str, Argument]]:
    """Every argument of every command."""
    for argument in ARGUMENTS:
        for command in argument.commands:
            yield command, argument


def bad_argument(rng: Random) -> Case:
    """One command line with one wrong argument."""
    argument = rng.choice(ARGUMENTS)
    return with_wrong(rng, rng.choice(argument.commands), argument)


def with_wrong(rng: Random, command: str, argument: Argument) -> Case:
    """A command line with this argument wrong."""
    wrong, words = argument.wrong(rng), list(BASE[command] if argument.base is None else argument.base)
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
