"""Texts that look like numbers or words, and are not what a program should take for them."""

from random import Random

NO_NUMBERS = (
    *("", " ", "nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e400", "-1e400", "1e999999999", "9" * 400),
    *("1_000", "0x10", "0b1", "0o7", "1.2.3", "1e", "e5", "--5", "+-5", "5%", "5s", "1/2", "1'000", "1 000", "1;5"),
    *("True", "None", "null", "abc", "1e5e5", "1j", "(5)", "=5", "'5'", "..", "-", "+", ".", "1e+", "1d3"),
    *("\u0663", "\uff11\uff12", "\u00b2", "\u00bd", "\u2163", "\u0967", "\U0001d7d9", "\u221e", "\u22125", "\u4e09"),
    *("1\u00a0000", "\ufeff1", "1\u200b", "\u202e1", "1\u2028", "\U0001f525", "#NAME?", "#DIV/0!", "9" * 5000),
)
_DIGITS = ("\u0660", "\uff10", "\u0966", "\U0001d7ce", "\u0e50", "\u06f0")  # zero, in scripts that int() reads
_SPOIL = tuple("_x;%$'\"/\\&\u00a0\u2212\u066b\ufeff\u200b\u2003")


def no_number(rng: Random, good: str) -> str:
    """A text that is no number in ASCII digits, though Python may read it as one."""
    if rng.random() < 0.4:
        return rng.choice(NO_NUMBERS)
    places = [place for place, char in enumerate(good) if char.isdigit()]
    if rng.random() < 0.5 and places:
        place = rng.choice(places)
        return good[:place] + chr(ord(rng.choice(_DIGITS)) + int(good[place])) + good[place + 1 :]
    place = rng.randint(1, max(1, len(good) - 1))
    return good[:place] + rng.choice(_SPOIL) + good[place:] + str(rng.randrange(10))


def outside(rng: Random, low: float, high: float, *, whole: bool = False, takes_low: bool = True) -> str:
    """A number that is none from ``low`` to ``high``."""
    above = high * rng.choice((1.001, 2, 10, 1e3, 1e6, 1e9)) + 1
    below = low - rng.choice((1.0, 10.0, 1e6, rng.random() + 1e-3))
    values = [above, below, -above, *([] if takes_low else [low])]
    value = rng.choice(values)
    if whole:
        return str(int(value // 1))
    return rng.choice((repr(value), f"{value:.6e}", f"{value:.17g}"))


def fraction(rng: Random) -> str:
    """A number that is not whole."""
    return f"{rng.randrange(9)}.{rng.randrange(1, 10)}{rng.choice(('', '5', 'e0'))}"


def word(rng: Random) -> str:
    """A word that means nothing."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-_.\u00e4\u0416\u6f22"
    return "zz" + "".join(rng.choice(letters) for _ in range(rng.randint(1, 12)))


def cut(rng: Random, data: bytes) -> bytes:
    """Data that ends too early."""
    return data[: rng.randrange(len(data))]


def flipped(rng: Random, data: bytes) -> bytes:
    """Data with some bits another."""
    spoiled = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        spoiled[rng.randrange(len(spoiled))] ^= 1 << rng.randrange(8)
    return bytes(spoiled)


def foreign(rng: Random) -> bytes:
    """Bytes of something else."""
    return rng.choice(
        (
            b"",
            b"\n\n\n",
            bytes(rng.randrange(1, 4096)),
            rng.randbytes(rng.randrange(1, 4096)),
            b"\x7fELF" + rng.randbytes(64),
            b"\x89PNG\r\n\x1a\n" + rng.randbytes(64),
            b"PK\x03\x04" + rng.randbytes(rng.randrange(200)),
            b"\xff\xfe" + "stage,instruction".encode("utf-16-le"),
            "stage,instruction,frequency,time,energy\nä".encode("latin-1"),
            b"<html><body>404</body></html>",
            b"[" * rng.randrange(2_000, 100_000),
            b'{"a":' * rng.randrange(2_000, 20_000),
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n",
        )
    )
