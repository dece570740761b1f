"""Malformed files of a site: prices and carbon intensities, load targets, settings, a planner's state."""

import json
import sqlite3
import zlib
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from malformed.case import Case, Generator
from malformed.hostile import cut, foreign, no_number, outside, word

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HOURS = tuple(f"2099-11-23T{hour:02}:00:00+00:00" for hour in range(6))
_NO_TIMES = (
    *("", "x", "2099-11-23", "2099-11-23T01:00:00", "2099-13-01T00:00:00+00:00", "2099-11-23T25:00:00+00:00"),
    *("1e9", "-1", "2099-11-23T01:00:00+99:00", "20991123T01\x00", "\u0662\u0660\u0669\u0669-11-23T01:00:00+00:00"),
)


def bad_signal(rng: Random) -> Case:
    """Prices or carbon intensities with a value that is none, or in no known form."""
    text = rng.choice((_signal_csv, _electricity_maps, _uk_intensity, _tariff))(rng)
    data = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.15:
        data = rng.choice((foreign(rng), b"", b"\xff" + data, b"[]", b"null", b"{}", b'{"data": 3}', b"[" * 100_000))
    command: tuple[str, ...] = ("policy", "pace", "good.npz", "--signal", "bad.signal", "--iterations", "10")
    if rng.random() < 0.3:
        command = ("policy", "simulate", "good.npz", "--signal", "bad.signal", "--iterations", "10")
    argv = (*command, "--hours", "1", "--start", "2099-11-23T01:00:00+00:00")
    return Case(kind="signal", argv=argv, files={"bad.signal": data}, named=("bad.signal",))


def _signal_csv(rng: Random) -> str:
    rows = [[hour, "60", "0.08", "0.09"] for hour in _HOURS]
    header = ["timestamp", "duration", "value", "forecast"]
    at = rng.randrange(1, 5)
    match rng.randrange(6):
        case 0:
            rows[at][0] = rng.choice(_NO_TIMES)
        case 1:
            rows[at][1] = rng.choice(("0", "-60", "30", "61", no_number(rng, "60"), "1e300"))
        case 2:
            rows[at][rng.choice((2, 3))] = rng.choice((no_number(rng, "0.08"), "1e309", "-1e309", "--1"))
        case 3:
            del rows[at]  # a gap
        case 4:
            header[rng.randrange(3)] = word(rng) + "x"
        case _:
            rows.append(rows[at])
    return "\n".join(",".join(row) for row in [header, *rows]) + "\n"


def _electricity_maps(rng: Random) -> str:
    values: list[Any] = [{"carbonIntensity": 300 + number, "datetime": hour} for number, hour in enumerate(_HOURS)]
    _damage(rng, values, "carbonIntensity", "datetime")
    return json.dumps({rng.choice(("history", "forecast")): values})


def _uk_intensity(rng: Random) -> str:
    values: list[Any] = [
        {"from": begin, "to": end, "intensity": {"forecast": 90, "actual": 80}} for begin, end in pairwise(_HOURS)
    ]
    _damage(rng, values, "intensity", "from")
    return json.dumps({"data": values})


def _damage(rng: Random, values: list[Any], value: str, time: str) -> None:
    at = rng.randrange(1, len(values) - 1)
    match rng.randrange(4):
        case 0:
            values[at] = values[at] | {time: rng.choice((*_NO_TIMES, 3, None, [], {}))}
        case 1:
            values[at] = values[at] | {value: rng.choice(("x", -1, [], True, float("nan"), word(rng), {"x": 1}))}
        case 2:
            del values[at][rng.choice((value, time))]
        case _:
            values[at] = rng.choice((None, 3, [], word(rng), [values[at]]))


def _tariff(rng: Random) -> str:
    hours = [[0] * 24 for _ in range(12)]
    item: dict[str, Any] = {
        "name": "a tariff",
        "energyratestructure": [[{"rate": 0.1, "unit": "kWh"}], [{"rate": 0.2, "unit": "kWh"}]],
        "energyweekdayschedule": hours,
        "energyweekendschedule": [row[:] for row in hours],
    }
    key = rng.choice(("energyratestructure", "energyweekdayschedule", "energyweekendschedule"))
    wrong: Sequence[Any]
    if key == "energyratestructure":
        wrong = ([], [[]], [[{}]], [[{"rate": -1e309}]], [[{"rate": "x"}]], [[{"rate": True}]], 3, None, word(rng), [3])
    else:
        wrong = ([], hours[:11], [[0] * 23] * 12, [[9] * 24] * 12, [[-1] * 24] * 12, [["x"] * 24] * 12, 3, None)
    item[key] = rng.choice(wrong)
    if rng.random() < 0.2:
        del item[key]
    return json.dumps({"items": rng.choice(([item], [item], [item], [], [item, item], [3], None))})


def bad_load_targets(rng: Random) -> Case:
    """Load targets with a cell that is none."""
    header = ["name", "start", "end", "watts", "best_effort"]
    rows = [[f"peak-{at}", _HOURS[at], _HOURS[at + 1], "5000", "yes"] for at in range(3)]
    row = rng.choice(rows)
    match rng.randrange(8):
        case 0:
            row[0] = rng.choice(("", " ", "a b", "x" * 500, "a/b", "\x1b[0m", "peak-1" if row is not rows[1] else ""))
        case 1:
            row[rng.choice((1, 2))] = rng.choice(_NO_TIMES)
        case 2:
            row[1], row[2] = row[2], row[1]
        case 3:
            row[3] = rng.choice((no_number(rng, "5000"), outside(rng, 1e-3, 1e12), "5 kW", "-1", "0"))
        case 4:
            row[4] = rng.choice(("", "Yes", "true", "1", "x", word(rng), "yes "))
        case 5:
            row.append(rng.choice(("", "1", word(rng))))
        case 6:
            header[rng.randrange(5)] = word(rng)
        case _:
            del row[rng.randrange(1, 5) :]
    data = "".join(",".join(cells) + "\n" for cells in [header, *rows]).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        data = rng.choice((foreign(rng), b"", data[:30], b"\xff" + data, b"name,start,end,watts,best_effort\n"))
    argv = ("policy", "load-target", "hall", "--file", "bad.csv", "--planner", "127.0.0.1:1")
    return Case(kind="load targets", argv=argv, files={"bad.csv": data}, named=("bad.csv",))


def bad_settings(rng: Random) -> Case:
    """A settings file with a key, a value or a section that is none."""
    wrong = (
        *(
            "[planner]\nbind = 3\n",
            '[planner]\nbind = ""\n',
            "[planner]\nbind = 'nowhere'\n",
            "[planner]\nmax-mhz = 1\n",
        ),
        *("[clockd]\nmax-mhz = -1\n", "[clockd]\nmax-mhz = 'fast'\n", "[clockd]\nmax-mhz = 1.5\n"),
        *("[clockd]\nmax-mhz = nan\n", "[clockd]\nmax-mhz = true\n", "[clockd]\ngroup = []\n"),
        *("[client]\nplanner = 'a:b:c'\n", "[client]\nplanner = 1979-05-27\n", "[client]\ntoken-file = {}\n"),
        *("[planner\n", "planner = 3\n", "[[planner]]\nbind = 'a:1'\n", "[planner]\nbind = 'a:1'\nbind = 'b:1'\n"),
        f"[{word(rng)}x]\nbind = 'a:1'\n",
        f"[planner]\n{word(rng)}x = 1\n",
        f"[clockd]\nmax-mhz = {rng.choice(('1e9', '-5', '0x', '9' * 5000, '[1980]', '{a = 1}', ''))}\n",
        f"{word(rng)}x = {rng.randrange(9)}\n",
    )
    text = rng.choice(wrong)
    data = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.15:
        data = rng.choice((b"\xff" + data, data + b"\x00", foreign(rng) + b"\n]x", b"\xef\xbb\xbf[planner]\nx = 1\n"))
    named = ("bad.toml",)
    return Case(kind="settings", argv=("config", "--check", "bad.toml"), files={"bad.toml": data}, named=named)


def bad_state(folder: Path) -> Generator:
    """A planner's state, or a backup of it, that is damaged, of something else, or none."""
    from perseus_dist.planner.store.store import Store

    good, other = folder / "good.sqlite", folder / "other.sqlite"
    Store(good).close()
    state = good.read_bytes()
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE facts (x INTEGER)")
    connection.close()
    foreign_state = other.read_bytes()
    for made in {*folder.glob("*.sqlite*")} - {good}:
        made.unlink()

    def draw(rng: Random) -> Case:
        damaged: Callable[[], bytes] = rng.choice(
            (
                lambda: state[: rng.randrange(len(state) // 2)],
                lambda: rng.randbytes(16) + state[16:],
                lambda: state[:100] + rng.randbytes(len(state) - 100),
                lambda: foreign_state + rng.randbytes(rng.randrange(1, 9)) * 0,
                lambda: cut(rng, foreign_state)[:1000],
                lambda: foreign(rng),
                lambda: zlib.compress(state, rng.randrange(10)) + rng.randbytes(4),
            )
        )
        files = {"bad.sqlite": damaged()}
        commands = (
            ("state", "check", "bad.sqlite"),
            ("state", "check", "bad.sqlite", "--json"),
            ("state", "restore", "bad.sqlite", "--state-dir", "new"),
        )
        return Case(kind="planner's state", argv=rng.choice(commands), files=files, named=("bad.sqlite",))

    return draw
