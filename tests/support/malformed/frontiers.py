"""Saved frontiers with something wrong in the archive, in an array's header, or in what the arrays say."""

import io
import json
import math
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from malformed.case import Case, Expected
from malformed.hostile import cut, flipped, foreign
from perseus_dist.planning.frontier.frontier_file import _digest

LOOKUPS = (
    ("lookup", "bad.npz", "--slowdown", "1.05", "--json"),
    ("lookup", "bad.npz", "--slowdown", "1.2", "--out", "found.json", "--json"),
    ("lookup", "bad.npz", "--fastest", "--json"),
    ("lookup", "bad.npz", "--straggler-s", "2", "--json"),
)
Arrays = dict[str, NDArray[Any]]
_HUGE = (-(2**63), 2**63 - 1, -1, -1321, 2**31, 2**40, 2**62)


def _case(rng: Random, kind: str, data: bytes, expected: Expected = Expected.REFUSED) -> Case:
    return Case(
        kind=f"frontier: {kind}",
        argv=rng.choice(LOOKUPS),
        files={"bad.npz": data},
        named=("bad.npz",),
        expected=expected,
    )


def _packed(arrays: Arrays) -> bytes:
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)  # type: ignore[arg-type]
    return data.getvalue()


def sealed(arrays: Arrays) -> Arrays:
    """With the digest that fits, as far as there can be one."""
    header = json.loads(arrays["header"].tobytes())
    header.pop("sha256", None)
    header["sha256"] = _digest(header, arrays)
    return {**arrays, "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}


def _members(good: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def bad_archive(good: bytes) -> Callable[[Random], Case]:
    """The archive itself: cut off, other bits, members lost, doubled, renamed or foreign."""

    def draw(rng: Random) -> Case:
        members = _members(good)
        name = rng.choice(list(members))
        match rng.randrange(7):
            case 0:
                return _case(rng, "archive", cut(rng, good))
            case 1 | 2:
                return _case(rng, "bits of the archive", flipped(rng, good), Expected.SAME)
            case 3:
                return _case(rng, "archive", foreign(rng))
            case 4:
                del members[name]
            case 5:
                members[name] = rng.choice((foreign(rng), cut(rng, members[name])))
            case _:
                members[rng.choice((f"x{name}", f"../{name}", name.upper(), "header.npy/x"))] = members.pop(name)
        return _case(rng, "archive", _zipped(members, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))))

    return draw


def bad_npy(good: bytes) -> Callable[[Random], Case]:
    """An array's own header: shape, type, order, version, or no dictionary at all."""

    def draw(rng: Random) -> Case:
        members = _members(good)
        name = rng.choice(list(members))
        content = members[name]
        length = int.from_bytes(content[8:10], "little")
        text, rest = content[10 : 10 + length].decode("latin-1"), content[10 + length :]
        begin, end = text.index("(") + 1, text.index(")")
        descr = text.split("'descr': '")[1].split("'")[0]
        shapes = ("10000000000000,", "-1,", "", "99999999999, 99999999999", "1.5,", "0,", "'a',", "1" * 4000, "(" * 200)
        is_maybe_harmless = False
        match rng.randrange(6):
            case 0:
                text = text[:begin] + rng.choice(shapes) + text[end:]
            case 1:
                types = ("<f8", "<i2", ">i8", "|O", "<U4", "<M8[s]", "|V8", "<c16", "<u8", "<x9", "", "i8,i8", "|b1")
                other = rng.choice([one for one in types if one != descr])
                text = text.replace(f"'{descr}'", rng.choice((f"'{other}'", "[('a', '<i8')]", "None", "3")))
            case 2:
                wrong = (
                    "__import__('os').system('true')",
                    "{",
                    "}",
                    "\x00",
                    "[]",
                    "1",
                    "{'descr': 1}",
                    "(" * 300,
                    "'''",
                )
                text = rng.choice(wrong)
            case 3:
                text = text.replace(
                    "'fortran_order'", rng.choice(("'fortran'", "'descr'", "fortran_order", "'x': 1, 'y'"))
                )
            case 4:
                at = rng.randrange(begin - 8, end)
                is_maybe_harmless = True  # a comment, or a line break
                text = text[:at] + rng.choice("{}()'\",\\\n\x00#:;") + text[at:]
            case _:
                version = rng.choice((b"\x00\x00", b"\x03\x00", b"\x02\x00", b"\x09\x01", b"\xff\xff"))
                members[name] = content[:6] + version + content[8:]
                return _case(rng, "npy header", _zipped(members))
        header = text.encode("latin-1")
        members[name] = content[:8] + len(header).to_bytes(2, "little") + header + rest
        return _case(rng, "npy header", _zipped(members), Expected.SAME if is_maybe_harmless else Expected.REFUSED)

    return draw


def bad_header(good: bytes) -> Callable[[Random], Case]:
    """The JSON header: fields that are missing, of another type, of no sense, or at odds with the arrays."""
    values: tuple[Any, ...] = (
        *(None, True, "", "x", [], {}, -1, 0, 1.5, 10**30, float("nan"), float("inf"), [[0, "F"]], [1, "a"], {"a": 1}),
        *("0F0 0B0\n", "\u0660F0", "0F0 0B0\n1F0 1B0\n", 2**63, -(2**63), "1", [None], ["x"], [1.5], [10**30], [-1]),
    )

    def draw(rng: Random) -> Case:
        with np.load(io.BytesIO(good)) as archive:
            arrays: Arrays = dict(archive)
        header = json.loads(arrays["header"].tobytes())
        name = rng.choice([name for name in header if not name.endswith("_seconds") and name != "sha256"])
        match rng.randrange(4):
            case 0:
                del header[name]
            case 1:
                value = header[name]
                if isinstance(value, list):
                    at = rng.randrange(len(value))
                    spoilt = rng.choice([one for one in values if one != value[at]])
                    header[name] = rng.choice(
                        (value[:at], [*value, value[at]], [*value[:at], spoilt, *value[at + 1 :]])
                    )
                elif isinstance(value, int):
                    header[name] = rng.choice((value + 1, float(value), str(value), -value - 1, value + 2**63))
                elif isinstance(value, float):
                    header[name] = rng.choice((-value - 1, str(value), [value], math.nan, math.inf, value + 2))
                else:
                    header[name] = rng.choice((value[:-2], f"{value}x", value.upper() + "?", [value]))
            case _:
                header[name] = rng.choice([one for one in values if one != header[name] or type(one) is bool])
        data = json.dumps(header).encode()
        if rng.random() < 0.1:
            data, is_sealed = (
                rng.choice((cut(rng, data), foreign(rng), data + b"}", b"null", b"[]", b"9" * 5000)),
                False,
            )
        else:
            is_sealed = rng.random() < 0.5 and name not in ("switch_latency_ps", "tensor_parallel")  # as plausible
        arrays["header"] = np.frombuffer(data, dtype=np.uint8)
        return _case(
            rng, "header, sealed again" if is_sealed else "header", _packed(sealed(arrays) if is_sealed else arrays)
        )

    return draw


def bad_array(good: bytes) -> Callable[[Random], Case]:
    """One array: another type, shape or order, or values that no plan, curve or bound can have."""

    def draw(rng: Random) -> Case:
        with np.load(io.BytesIO(good)) as archive:
            arrays: Arrays = dict(archive)
        name = rng.choice([name for name in arrays if name != "header"])
        array = arrays[name]
        flat = array.reshape(-1)
        change = rng.randrange(7)
        match change:
            case 0:
                other = rng.choice(
                    [kind for kind in ("f8", "i2", "u8", ">i8", "U5", "c16", "?") if np.dtype(kind) != array.dtype]
                )
                arrays[name] = array.astype(other)
            case 1:
                shapes = (array[:-1], array[..., None], array[:0], np.concatenate((array, array)), array[None], flat[0])
                arrays[name] = np.asarray(rng.choice([one for one in shapes if one.shape != array.shape]))
            case 2 | 3:  # one value that cannot be
                spoilt = array.copy()
                limits = np.iinfo(array.dtype)
                at = rng.randrange(flat.size)
                fitting = [value for value in _HUGE if limits.min <= value <= limits.max and value != flat[at]]
                spoilt.reshape(-1)[at] = rng.choice(fitting or [limits.max])
                arrays[name] = spoilt
            case 4:  # one value a little off
                spoilt = array.copy()
                at = rng.randrange(flat.size)
                delta = rng.choice((1, 2, 1000)) * (-1 if int(flat[at]) > 1000 and rng.random() < 0.5 else 1)
                spoilt.reshape(-1)[at] += array.dtype.type(abs(delta)) * (1 if delta > 0 else -1)
                arrays[name] = spoilt
            case 5:  # two values changed places
                spoilt = array.copy()
                first = rng.randrange(flat.size)
                others = np.flatnonzero(flat != flat[first])
                second = int(rng.choice(others.tolist())) if len(others) else first
                values = spoilt.reshape(-1)
                values[[first, second]] = values[[second, first]]
                if first == second:
                    values[first] += 1
                arrays[name] = spoilt
            case _:
                fill = rng.choice((0, int(np.iinfo(array.dtype).max), 1))
                arrays[name] = np.full_like(array, fill)
                if np.array_equal(arrays[name], array):
                    arrays[name] += 1
        # Other clocks may take the same time and energy, and other bounds be as plausible: there the digest is all.
        may_be_so = name == "curve_clocks_mhz" and change in (4, 5)
        is_sealed = name.startswith(("curve", "time", "effective", "num")) and not may_be_so and rng.random() < 0.5
        return _case(
            rng, "an array, sealed again" if is_sealed else "an array", _packed(sealed(arrays) if is_sealed else arrays)
        )

    return draw
