"""Draws what an argument is not: no number, no file, no place, no name, no address."""

from collections.abc import Callable
from random import Random

from malformed.hostile import fraction, no_number, outside, word

Wrong = Callable[[Random], str]


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


def planner_address(rng: Random) -> str:
    """No address of a planner, and none of one of its replicas."""
    port = whole(0, 65_535, good="50151")(rng)
    wrong = ("", "node", "h:", ":1", "h:65536", "h:x", "h:-1", "h:\u0663", "h: 1", "a:1,", ",,", "a:1,,b:1", "[::1")
    return rng.choice((*wrong, "http://h:1", "\udcff:1", f"127.0.0.1:{port}", f"h:1,[::1]:{port}"))


def advertised(rng: Random) -> str:
    """No address at which others could reach a planner."""
    return rng.choice((address(rng), "127.0.0.1:0", "0.0.0.0:50151", "[::]:50151", "[0:0::0]:50151"))


def host(rng: Random) -> str:
    """No ``HOST`` and no ``HOST:PORT``."""
    port = whole(0, 65_535, good="50151")(rng)
    return rng.choice(
        ("", " ", "a b", "h:x", "[::1", "::1::2", "a,b", "h:1:2", "\udcff", "a/b", "h:", f"node-0:{port}")
    )


def common_name(rng: Random) -> str:
    """No name in a certificate."""
    return rng.choice(("", "x" * rng.randrange(129, 5_000), "\udcff", "a\nb", "\x1b[0m", "\u202ea", f"{word(rng)}\t"))


def file_name(rng: Random) -> str:
    """No name of a file in a folder of the planner's."""
    name = word(rng)
    wrong = ("", " ", "../x", "/etc/passwd", ".hidden", "-x", "a b", "\udcff", "\u00e4.csv", "a\nb", "x" * 129, "~/x")
    return rng.choice((*wrong, f"{name}/{name}", f"./{name}", f"{name}\\"))


def rehearsal(rng: Random) -> str:
    """No name that jobs of a rehearsal could begin with."""
    return rng.choice((job(rng), "x" * 101, "-x", ".x", "_x"))


def report(rng: Random) -> str:
    """No folder of a report."""
    return rng.choice(("", word(rng), "profile.csv", "folder", "profile.csv/x", "loop", "x" * 300, "\udcff\udcfe"))


def no_program(rng: Random) -> str:
    """No program that can be run."""
    return rng.choice(
        ("", word(rng), f"./{word(rng)}", "folder/", "./profile.csv", "profile.csv/x", "./loop", "x" * 300)
    )
