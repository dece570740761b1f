"""JSON that a command reads: scenarios, known failures, losses, a report's folder; and tokens and certificates."""

import json
from random import Random
from typing import Any

from malformed.case import Case, Expected
from malformed.hostile import cut, flipped, foreign, no_number, word

SCENARIO: dict[str, Any] = {
    "schedule": "1f1b",
    "pp": 2,
    "dp": 2,
    "microbatches": 4,
    "gpu": "a100",
    "imbalance": 0.1,
    "time_scale": 1.0,
    "noise_percent": 0.2,
    "profile": "saved",
    "target": "t_min",
    "iterations": 40,
    "seed": 1,
    "events": [
        {"iteration": 10, "rank": 3, "thermal_cap_mhz": 1005},
        {"iteration": 12, "rank": 1, "slowdown": 1.2},
        {"iteration": 14, "kill": "agent", "rank": 1},
        {"iteration": 15, "target": "slowdown=1.05"},
        {"iteration": 16, "straggler": {"pipeline": 1, "degree": 1.2}},
    ],
}
_WRONG: tuple[Any, ...] = (
    *(True, "", "x", [], {}, -1, -0.5, 10**30, float("nan"), float("inf"), float("-inf"), [1], {"a": 1}, 1e308, "1"),
    *("\u0663", "1f1c", "\x00", "\ud800", [[]], 2**63, -(2**63), "deadline=nan", "slowdown=0.5", "deadline=1e400"),
)


def bad_scenario(rng: Random) -> Case:
    """A history with a field or an event that is not what it should be."""
    document = json.loads(json.dumps(SCENARIO))
    events = document["events"]
    place = rng.choice([document, *events, events[4]["straggler"]])
    name = rng.choice([key for key in place if key not in ("schedule", "events")])
    match rng.randrange(5):
        case 0:
            place[word(rng)] = 1
        case 1 if place is not document:
            del place["iteration" if "iteration" in place else "pipeline"]
        case 2:
            document[rng.choice(("pp", "schedule", "microbatches", "iterations", "events"))] = rng.choice(_WRONG[1:])
            if document["events"] == []:
                document["events"] = {}
        case 3:
            events.insert(
                rng.randrange(6), rng.choice((None, 1, "x", [], {"iteration": 9}, {"iteration": 41, "kill": "planner"}))
            )
        case _:
            wrong = rng.choice(_WRONG)
            # Another text is the path of a profile, which is read when the history is played.
            place[name] = [] if name == "profile" and isinstance(wrong, str) else wrong
    data = json.dumps(document).encode()
    if rng.random() < 0.2:
        data = rng.choice((cut(rng, data), foreign(rng), data + b"}", data.replace(b":", b"=", 1), b"\xff" + data))
    argv = ("simulate", "--virtual-time", "--scenario", "bad.json")
    return Case(kind="scenario", argv=argv, files={"bad.json": data}, named=("bad.json",))


def bad_known_failures(rng: Random) -> Case:
    """Known failures that name no seed, or no invariant."""
    seeds: tuple[str, ...] = ("-1", "1.5", "x", "", " 1", "\u0663", "1e3", "0x1", "9" * 5000)
    wrong: tuple[Any, ...] = ([], None, "settled_time", ["x"], [word(rng)], [1], {"a": 1}, [["settled_time"]], 3, True)
    if rng.random() < 0.5:
        data = json.dumps({rng.choice(seeds): ["settled_time"]}).encode()
    else:
        data = json.dumps({str(rng.randrange(1000)): rng.choice(wrong)}).encode()
    if rng.random() < 0.2:
        data = rng.choice((foreign(rng), cut(rng, data), b"[]", b"null", data + data))
    argv = ("simulate", "--virtual-time", "--chaos", "0-1", "--known-failures", "bad.json")
    return Case(kind="known failures", argv=argv, files={"bad.json": data}, named=("bad.json",))


def bad_losses(rng: Random) -> Case:
    """Losses with a line that is none, or of other steps than the reference's."""
    lines = [json.dumps({"step": step, "loss": 5.0 - step / 10}) for step in range(6)]
    wrong = (
        *('{"step": -1, "loss": 1}', '{"step": 1.5, "loss": 1}', '{"step": 1}', '{"loss": 1}', "[]", "null", "{", "1"),
        *(
            '{"step": 1, "loss": []}',
            '{"step": "1", "loss": 1}',
            '{"step": true, "loss": 1}',
            '{"step": 1, "loss": null}',
        ),
        *('{"step": 9, "loss": 1}', f'{{"step": {rng.randrange(100, 10**6)}, "loss": 1}}', '{"step": 1, "loss": "x"}'),
        f'{{"step": 2, "loss": {json.dumps(no_number(rng, "5.25")[:40] + "z")}}}',
    )
    lines[rng.randrange(6)] = rng.choice(wrong)
    data = "\n".join(lines).encode()
    if rng.random() < 0.2:
        data = rng.choice((foreign(rng), cut(rng, data), b"", b"\xff"))
    argv = ("report", "run", "--losses", "bad.jsonl", "--reference-losses", "losses.jsonl")
    return Case(kind="losses", argv=argv, files={"bad.jsonl": data}, named=("bad.jsonl",))


def bad_token(rng: Random) -> Case:
    """A token that is none."""
    data = rng.choice(
        (
            b"",
            b" \n",
            b"two words",
            b"a\x00b",
            b"caf\xc3\xa9",
            b"\xff\xfe",
            b"x" * (2 << 20),
            b"a\nb",
            rng.randbytes(40) + b"\xff",
            word(rng).encode() + b" " + word(rng).encode(),
        )
    )
    argv = rng.choice(
        (("jobs",), ("watch", "gpt"), ("target", "gpt", "--t-min"), ("straggler", "clear", "gpt", "--id", "a"))
    )
    return Case(
        kind="token file", argv=(*argv, "--token-file", "bad.token"), files={"bad.token": data}, named=("bad.token",)
    )


def bad_certificate(rng: Random) -> Case:
    """PEM that is none, for a client or a server."""
    body = b"-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n"
    data = rng.choice(
        (foreign(rng), body % b"", body % rng.randbytes(60), b"x" * (2 << 20), body % b"AAAA", rng.randbytes(99))
    )
    files = {"bad.pem": data, "key.pem": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}
    argv = rng.choice(
        (
            ("jobs", "--tls-ca", "bad.pem"),
            ("watch", "gpt", "--tls-cert", "bad.pem", "--tls-key", "key.pem"),
            ("planner", "--bind", "127.0.0.1:0", "--state-dir", "new", "--tls-cert", "bad.pem", "--tls-key", "key.pem"),
        )
    )
    return Case(kind="certificate", argv=argv, files=files, named=("bad.pem", "--tls"))


JOB = {"job_id": "gpt", "num_ranks": 1, "pp_size": 1, "dp_size": 1, "tp_size": 1}


def bad_job(rng: Random) -> Case:
    """A report folder whose ``job.json`` cannot be understood."""
    data = rng.choice((foreign(rng), b"null", b"[]", b'"x"', b"3", cut(rng, json.dumps(JOB).encode()), b"\xff", b"{}"))
    return Case(kind="report: job.json", argv=("report", "bad"), files={"bad/job.json": data}, named=("bad",))


def bad_part(good: dict[str, bytes]) -> Any:
    """A report folder of which one file is damaged: of ``job.json`` refused, else told; never a traceback."""

    def draw(rng: Random) -> Case:
        files = {f"bad/{name}": data for name, data in good.items()}
        name = rng.choice(list(files))
        data = files[name]
        lines = data.split(b"\n")
        match rng.randrange(5):
            case 0:
                files[name] = cut(rng, data)
            case 1:
                files[name] = flipped(rng, data)
            case 2:
                files[name] = foreign(rng)
            case 3:
                lines.insert(
                    rng.randrange(len(lines)), rng.choice((b"{", b"null", b"[]", b"\xff", b"1,2", b"\x00", b"{}"))
                )
                files[name] = b"\n".join(lines)
            case _:
                at = rng.choice([place for place, byte in enumerate(data) if chr(byte).isdigit()] or [0])
                spoilt = rng.choice(
                    (b"-", b"1e999", b"NaN", b"9" * 30, b"\xd9\xa3", b'"x"', b"null", b"[]", b"Infinity")
                )
                files[name] = data[:at] + spoilt + data[at + 1 :]
        return Case(kind="report: a part", argv=("report", "bad"), files=files, named=("bad",), expected=Expected.TOLD)

    return draw
