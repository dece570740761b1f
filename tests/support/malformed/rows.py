"""Profiles and schedules: text files with something wrong in them."""

from itertools import pairwise
from random import Random

from malformed.case import Case
from malformed.hostile import cut, foreign, fraction, no_number, outside

HEADER = "stage,instruction,frequency,time,energy"
ROWS = tuple(
    f"{stage},{name},{clock_mhz},{time_s:.3f},{energy_j}"
    for stage in (0, 1)
    for name, base_s, watts in (("forward", 0.05, 400), ("backward", 0.09, 410))
    for clock_mhz, time_s in ((1410, base_s), (1200, base_s * 1.1), (900, base_s * 1.4))
    for energy_j in (round(watts * (clock_mhz / 1410) ** 1.8 * time_s, 3),)
)
PROFILE = "\n".join([HEADER, *ROWS, ""])
SCHEDULE = "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3\n1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3\n"
OPTIONS = ("--schedule", "1f1b", "--pp", "2", "--microbatches", "2", "--blocking-power-w", "80")
_READERS = (
    ("plan", "bad.csv", *OPTIONS, "--out", "plans"),
    ("profile", "show", "bad.csv", "--out", "curves.svg"),
    ("compare", "bad.csv", *OPTIONS),
    ("emulate", "bad.csv", *OPTIONS, "--pipelines", "2"),
    ("simulate", "--virtual-time", *OPTIONS[:6], "--iterations", "2", "--profile", "bad.csv"),
)


def profile_case(rng: Random, kind: str, text: str | bytes) -> Case:
    data = text if isinstance(text, bytes) else text.encode(errors="surrogateescape")
    return Case(kind=kind, argv=rng.choice(_READERS), files={"bad.csv": data}, named=("bad.csv",))


def bad_cell(rng: Random) -> Case:
    """One cell of a profile that is not what its column holds."""
    rows = [row.split(",") for row in ROWS]
    row, column = rng.choice(rows), rng.randrange(5)
    good = row[column]
    if column == 1:
        names = ("Forward", "f", "", "backward_", "FORWARD", "back ward", "\u0432ackward", "forward\u00a0", "fwd1", "-")
        bad = rng.choice(names) + rng.choice(("", "!", "?", "0"))
        bad = "Forward" if bad == "fwd1" else bad
    else:
        low, high = {0: (0, 1e5), 2: (1, 1e5), 3: (1e-9, 1e4), 4: (1e-6, 1e6)}[column]
        wrong = [no_number(rng, good), outside(rng, low, high)]
        wrong += [fraction(rng)] * (column in (0, 2))
        bad = rng.choice(wrong)
    row[column] = f'"{bad}"' if "," in bad or ('"' in bad and rng.random() < 0.5) else bad.replace('"', '""')
    newline = rng.choice(("\n", "\r\n"))
    bom = rng.choice(("", "\ufeff"))
    text = bom + newline.join([HEADER, *(",".join(cells) for cells in rows)])
    return profile_case(rng, "profile: a cell", text)


def bad_shape(rng: Random) -> Case:
    """Rows that are missing, too short, too long, repeated, or apart by something else."""
    lines = [HEADER, *ROWS]
    at = rng.randrange(1, len(lines))
    match rng.randrange(11):
        case 0:
            lines[at] = lines[at].rpartition(",")[0]
        case 1:
            lines[at] += f",{rng.randrange(100)}"
        case 2:  # a whole instruction, or stage, is missing
            prefix = rng.choice(("0,forward", "0,backward", "1,forward", "1,backward", "0,"))
            lines = [line for line in lines if not line.startswith(prefix)]
        case 3:  # only one clock is left
            prefix = ",".join(lines[at].split(",")[:2])
            lines = [line for line in lines if not line.startswith(prefix) or line == lines[at]]
        case 4:
            lines[0] = HEADER.replace(
                rng.choice(HEADER.split(",")), rng.choice(("", "x", "power", "Time", "\u0435nergy"))
            )
        case 5:
            lines[0] = f"{HEADER},{rng.choice(HEADER.split(','))}"
        case 6:
            separator = rng.choice((";", "\t", " ", "|", "\uff0c"))
            lines = [line.replace(",", separator) for line in lines]
        case 7:
            lines[at] = lines[at].replace(",", ',"', 1)
        case 8:  # a locale with decimal commas
            lines = [lines[0], *(line.replace(".", ",") for line in lines[1:])]
        case 9:  # a unit is wrong: ms, mJ, uJ, kHz
            column, factor = rng.choice(((3, 1e3), (4, 1e3), (4, 1e6), (3, 1e6), (4, 1e-3), (4, 1e-6)))
            rows = [line.split(",") for line in lines[1:]]
            for row in rows:
                row[column] = repr(float(row[column]) * factor)
            lines = [HEADER, *map(",".join, rows)]
        case _:
            stage = rng.choice((3, 7, 99_999))
            lines.append(f"{stage},forward,{rng.randrange(900, 1400)},0.05,20")
    if rng.random() < 0.5:
        lines[1:] = rng.sample(lines[1:], len(lines) - 1)
    return profile_case(rng, "profile: its shape", "\n".join(lines))


def bad_change(rng: Random) -> Case:
    """One row of how long a change of clocks takes that cannot be, among good ones."""
    changes = [
        [str(stage), "clock_change", str(mhz), "0.012", rng.choice(("", "0")), rng.choice(("0.014", ""))]
        for stage in (0, 1)
        for mhz in (1410, 1200, 900)
    ]
    rows = [[*row.split(","), ""] for row in ROWS]
    transfers = [["0", "send_f", "0", "0.004", "", "0.005"], ["1", "send_b", "", "0.004", "0", ""]]
    row = rng.choice(changes)
    match rng.randrange(9):
        case 8:  # of a transfer: a percentile below its time, or none
            low = f"{rng.uniform(0, 0.0039):.6f}"
            rng.choice(transfers)[5] = rng.choice((low, no_number(rng, "0.014").strip(" ") or "nan", "1e5"))
        case 0:  # a clock that is none
            row[2] = rng.choice((no_number(rng, "1200"), outside(rng, 1, 1e5), fraction(rng), "", "0"))
        case 1:
            row[3] = rng.choice((no_number(rng, "0.012"), outside(rng, 1e-9, 10), ""))
        case 2:
            row[5] = rng.choice((no_number(rng, "0.014").strip(" ") or "nan", outside(rng, 0, 10)))
        case 3:  # ms
            row[3], row[5] = f"{rng.uniform(10.1, 900):.4g}", rng.choice(("", "950"))
        case 4:  # a percentile below its median
            row[3], row[5] = f"{rng.uniform(0.005, 0.5):.6f}", f"{rng.uniform(0, 0.004):.6f}"
        case 5:  # it draws something
            row[4] = rng.choice((f"{rng.uniform(1e-3, 500):.6f}", no_number(rng, "1").strip(" ") or "nan"))
        case 6:  # of a stage that computes nothing, or that is none
            row[0] = rng.choice(("2", str(rng.randrange(3, 90_000)), no_number(rng, "1"), "-1", fraction(rng)))
        case _:  # a percentile of a computation
            rng.choice(rows)[5] = f"{rng.uniform(0.01, 0.2):.5f}"
    cells = [[f'"{cell}"' if "," in cell else cell for cell in one] for one in (*rows, *changes, *transfers)]
    text = "\n".join([f"{HEADER},time_p90", *map(",".join, rng.sample(cells, len(cells)))])
    return profile_case(rng, "profile: a change of clocks", text)


def bad_bytes(rng: Random) -> Case:
    """A profile that is no text."""
    data = PROFILE.encode()
    at = rng.randrange(len(HEADER) + 1, len(data))
    spoiled = rng.choice(
        (
            foreign(rng),
            cut(rng, data[: len(HEADER) + 100]),
            data[:at] + rng.choice((b"\x00", b"\xff", b"\xe4", b"\xc3\x28", b"\xed\xa0\x80")) + data[at:],
            PROFILE.encode("utf-16"),
            PROFILE.encode("utf-32"),
        )
    )
    return profile_case(rng, "profile: its bytes", spoiled)


def _tokens() -> list[list[str]]:
    return [line.split() for line in SCHEDULE.splitlines()]


def bad_schedule(rng: Random) -> Case:
    """A schedule that forgets, repeats, misspells, joins what cannot be joined, or never ends."""
    lines: list[list[str]] = _tokens()
    line = rng.choice(lines)
    at = rng.randrange(len(line))
    token = line[at]
    match rng.randrange(9):
        case 0:
            del line[at]
        case 1:
            line.insert(rng.randrange(len(line)), token)
        case 2:
            bad = (token.lower(), f"{token}x", token[1:], token[:-1], f"-{token}", token.replace("0", "\u0660"), "2D0")
            line[at] = rng.choice((*bad, "\uff10F0", "0F1e3", "0F" + "9" * 10, "0F 0", "\x00", "0FF0", "0F0++", "+"))
            if line[at] == token:
                line[at] = "0f0"
        case 3:  # two that do not exchange with each other
            forwards = [i for i, (one, two) in enumerate(pairwise(line)) if one[1] == two[1]]
            if forwards:
                line[rng.choice(forwards)] += "+"
            else:
                line[-1] += "+"
        case 4:
            line[-1] += "+"
        case 5:  # backward before its forward
            line.reverse()
        case 6:
            lines[0], lines[1] = lines[0] + lines[1][:1], lines[1][1:]
        case 7:
            line[at] = f"{rng.choice((7, 99, 999_999_999))}F0"
        case _:
            line[at] = f"0F{rng.choice((9, 99, 1_000, 999_999_999))}"
    data = "\n".join(rng.choice((" ", ", ")).join(line) for line in lines).encode()
    if rng.random() < 0.15:
        data = foreign(rng) or b"\n"
    commands = (
        ("plan", "profile.csv", "--schedule-file", "bad.txt", "--blocking-power-w", "80", "--out", "plans"),
        ("schedule", "--schedule-file", "bad.txt"),
        ("schedule", "--schedule-file", "bad.txt", "--grid"),
        ("simulate", "--virtual-time", "--schedule-file", "bad.txt", "--iterations", "2"),
    )
    return Case(kind="schedule file", argv=rng.choice(commands), files={"bad.txt": data}, named=("bad.txt",))
