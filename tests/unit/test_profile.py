"""Profiles: what is read, what is refused and in which words, what samples say together."""

import math
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_dist.errors import OutputError, ProfileError
from perseus_dist.planning.profile.profile import Profile, read_profile, write_profile
from perseus_dist.planning.profile.profile_csv import MAX_CHANGE_S, Row, read_rows
from perseus_dist.planning.profile.samples import estimate

HEADER = "stage,instruction,frequency,time,energy"
GOOD = f"""{HEADER}
0,forward,1410,0.05,20
0,forward,1200,0.06,15
0,backward,1410,0.10,40
0,backward,1200,0.12,30
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "profile.csv"
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("zero", ["", "0", "0.000", "0.000000e+00", "-0.0"])
def test_nothing_is_zero_however_it_is_written(tmp_path: Path, zero: str) -> None:
    rows = read_rows(write(tmp_path, f"{GOOD}0,send_f,{zero},0.01,{zero}\n0,overlap_f,{zero},{zero},{zero}\n"))
    assert [(row.kind, row.clock_mhz, row.energy_j) for row in rows[4:]] == [("SEND_F", 0, 0)]


def assert_same(left: Profile, right: Profile) -> None:
    assert list(left.measurements) == list(right.measurements)
    for key, ours in left.measurements.items():
        theirs = right.measurements[key]
        assert ours.gpus == theirs.gpus
        for name in ("clocks_mhz", "times_s", "energies_j", "num_samples", "time_std_s", "energy_std_j"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=f"{key} {name}")


def test_the_peers_format(tmp_path: Path) -> None:
    profile = read_profile(write(tmp_path, GOOD))
    assert profile.num_stages == 1
    assert list(profile.measurements) == [(0, "F"), (0, "B")]
    forward = profile.measurements[0, "F"]
    assert forward.clocks_mhz.tolist() == [1410, 1200]
    assert forward.clocks_mhz.dtype == np.int64
    assert forward.gpus == ("",)
    assert forward.times_s.tolist() == [[0.05, 0.06]]
    assert forward.energies_j.tolist() == [[20.0, 15.0]]
    assert forward.num_samples.tolist() == [[1.0, 1.0]]
    assert np.isnan(forward.time_std_s).all()
    assert forward.line == 2


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\ufeff" + GOOD.replace("\n", "\r\n"), id="byte order mark and CRLF"),
        pytest.param(GOOD.replace(",1410,", ",1410.0,").replace("0,forward", "0.0,forward"), id="whole floats"),
        pytest.param(GOOD.replace("0.05,20", '"0.05","20"'), id="quoted"),
        pytest.param(GOOD.replace(",", " , ") + "\n\n", id="blanks and blank lines"),
        pytest.param("".join(f"x,{line}\n" for line in GOOD.splitlines()), id="unknown column first"),
        pytest.param(
            "".join(",".join(reversed(line.split(","))) + "\n" for line in GOOD.splitlines()), id="columns reversed"
        ),
    ],
)
def test_forms_of_the_same_file(tmp_path: Path, text: str) -> None:
    expected = read_profile(write(tmp_path, GOOD))
    assert_same(read_profile(write(tmp_path, text)), expected)


def test_a_long_cell_is_cut_in_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"saw '(0x){30}\.\.\.', expected"):
        read_profile(write(tmp_path, GOOD.replace(",1410,", f",{'0x' * 40},", 1)))


def test_shared_profiles_are_read_plainly(shared_data: Path) -> None:
    for path in sorted((shared_data / "sosp24" / "stage_profile").glob("*.csv")):
        profile = read_profile(path)
        rows = read_rows(path)
        assert profile.num_stages == 8
        assert not profile.rejected
        assert sum(found.times_s.size for found in profile.measurements.values()) == len(rows)
        for row in rows:
            found = profile.measurements[row.stage, row.kind]
            index = found.clocks_mhz.tolist().index(row.clock_mhz)
            assert (found.times_s[0, index], found.energies_j[0, index]) == (row.time_s, row.energy_j)


@pytest.mark.parametrize(
    ("seen", "instead", "parts"),
    [
        ("0.05,20", "nan,20", [":2:", "column 'time'", "'nan'", "seconds"]),
        ("0.05,20", "inf,20", [":2:", "column 'time'", "'inf'"]),
        ("0.06,15", "0.06,-1", [":3:", "column 'energy'", "'-1'", "joules"]),
        ("0.06,15", "0.06,0", [":3:", "column 'energy'", "'0'"]),
        ("0.10,40", "fast,40", [":4:", "column 'time'", "'fast'"]),
        ("0.10,40", "0_1,40", [":4:", "column 'time'", "'0_1'"]),
        ("0.10,40", "50000,40", [":4:", "column 'time'", "to 10000"]),
        ("0.10,40", ",40", [":4:", "column 'time'", "''"]),
        ("0.10,40", '"0.1\n0",40', [":5:", "column 'time'", r"'0.1\n0'"]),
        ("0,forward,1200", "0,forward,1200.5", [":3:", "column 'frequency'", "'1200.5'", "whole number of MHz"]),
        ("0,forward,1200", "0,forward,0", [":3:", "column 'frequency'", "'0'"]),
        ("0,forward,1200", "0,forward,1e400", [":3:", "column 'frequency'"]),
        ("0,forward,1200", "-1,forward,1200", [":3:", "column 'stage'", "'-1'"]),
        ("0,forward,1200", "0,Forward,1200", [":3:", "column 'instruction'", "'Forward'", "backward_weight"]),
        ("0,forward,1200", "0,f,1200", [":3:", "column 'instruction'", "'f'"]),
        ("0.06,15", "0.06,15,7", [":3:", "6 cells", "5"]),
        ("0.06,15", "0.06", [":3:", "4 cells", "5"]),
        ("0.06,15", '0.06,"15', [":5:", "not a CSV row"]),
        ("time", "seconds", [":1:", "seconds", "add time"]),
        (",time,energy", ",time", [":1:", "add energy"]),
        ("time,energy", "time,time,energy", [":1:", "'time' 2 times"]),
        (GOOD, "", [":1:", "an empty file", HEADER]),
        (GOOD, HEADER + "\n", [":1:", "no rows"]),
        ("0,forward,1200,0.06,15\n", "", [":2:", "stage 0 forward", "one clock (1410 MHz)", "at least 2"]),
        ("backward", "load", [":2:", "stage 0 has forward, load and no backward"]),
        ("forward", "forwrd", [":2:", "stage 0 has backward, forwrd and no forward"]),
        ("backward", "backward_input", [":2:", "and no backward_weight"]),
        ("0,forward,1200", "0,backward_input,1200", [":2:", "backward_input, forward and no backward_weight"]),
        ("0,", "1,", [":2:", "stage 1 and no stage 0"]),
    ],
)
def test_refused_in_one_line(tmp_path: Path, seen: str, instead: str, parts: list[str]) -> None:
    assert seen in GOOD
    path = write(tmp_path, GOOD.replace(seen, instead))
    with pytest.raises(ProfileError) as refused:
        read_profile(path)
    message = str(refused.value)
    assert message.startswith(f"{path}:")
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_a_stage_may_have_both_forms_of_the_backward(tmp_path: Path) -> None:
    """As under torch's DualPipeV, which runs some backwards whole and others in two."""
    halves = [row.replace("backward", f"backward_{half}") for half in ("input", "weight") for row in GOOD.split()[3:]]
    profile = read_profile(write(tmp_path, GOOD + "\n".join(halves)))
    assert {kind for _, kind in profile.measurements} == {"F", "B", "I", "W"}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read"):
        read_profile(tmp_path / "missing.csv")
    with pytest.raises(ProfileError, match="cannot be read"):
        read_profile(tmp_path)
    path = tmp_path / "latin1.csv"
    path.write_bytes(GOOD.encode() + "0,größe,1410,1,1\n".encode("latin-1"))
    with pytest.raises(ProfileError, match=r"latin1.csv:6: .*UTF-8"):
        read_profile(path)


def test_constants_may_have_one_clock(tmp_path: Path) -> None:
    profile = read_profile(write(tmp_path, GOOD + "0,load,1410,0.003,0.4\n"))
    assert profile.measurements[0, "LOAD"].times_s.tolist() == [[0.003]]


def test_gpus_of_a_group_are_kept_apart(tmp_path: Path) -> None:
    lines = GOOD.splitlines()
    both = [f"{line},{gpu}" for line in lines[1:] for gpu in ("a", "b")]
    path = write(tmp_path, "\n".join([f"{HEADER},gpu", *both, "0,forward,1410,0.07,30,b"]))
    forward = read_profile(path).measurements[0, "F"]
    assert forward.gpus == ("a", "b")
    np.testing.assert_allclose(forward.times_s, [[0.05, 0.06], [0.06, 0.06]], rtol=1e-15)
    assert forward.num_samples.tolist() == [[1, 1], [2, 1]]

    path = write(tmp_path, "\n".join([f"{HEADER},gpu", *both, '0,forward,1410,0.07,30,"a\tb"']))
    with pytest.raises(ProfileError, match=r":10: column 'gpu': saw 'a\\tb', expected a label"):
        read_profile(path)

    path = write(tmp_path, "\n".join([f"{HEADER},gpu", *both, "0,forward,1300,0.07,30,b"]))
    with pytest.raises(ProfileError, match=r":2: stage 0 forward: gpu 'a' has no row at 1300 MHz"):
        read_profile(path)


def row(
    time_s: float, energy_j: float = 1.0, *, line: int = 0, samples: int = 1, std: tuple[float, float] | None = None
) -> Row:
    time_std_s, energy_std_j = std or (math.nan, math.nan)
    return Row(line, 0, "F", 1410, time_s, energy_j, samples, time_std_s, energy_std_j)


@given(
    st.lists(st.tuples(st.floats(0.098, 0.1025), st.floats(19.6, 20.4)), min_size=1, max_size=12),
)
def test_without_gross_outliers_the_estimate_is_the_plain_mean(points: list[tuple[float, float]]) -> None:
    found, rejected = estimate([row(*point) for point in points])
    times_s, energies_j = zip(*points, strict=True)
    assert not rejected
    assert found.time_s == pytest.approx(mean(times_s), rel=1e-12)
    assert found.energy_j == pytest.approx(mean(energies_j), rel=1e-12)
    assert found.num_samples == len(points)
    if len(points) > 1:
        assert found.time_std_s == pytest.approx(stdev(times_s), rel=1e-9, abs=1e-16)
        assert found.energy_std_j == pytest.approx(stdev(energies_j), rel=1e-9, abs=2e-14)  # values of 20 J


@given(st.lists(st.tuples(st.floats(1e-3, 10), st.floats(10, 20)), min_size=1, max_size=12))
def test_some_row_always_stays(points: list[tuple[float, float]]) -> None:
    found, rejected = estimate([row(*point) for point in points])
    assert len(rejected) < len(points)
    assert len(rejected) + found.num_samples == len(points)


def test_gross_outliers_are_rejected_from_four_rows_on(tmp_path: Path) -> None:
    outlier, *rest = [row(0.2, line=9), row(0.1), row(0.1001), row(0.0999)]
    found, rejected = estimate([outlier, *rest])
    assert found.time_s == pytest.approx(0.1, rel=1e-12)
    assert [rejection.row.line for rejection in rejected] == [9]
    assert rejected[0].median_time_s == pytest.approx(0.10005)
    three, none = estimate([outlier, *rest[:2]])
    assert not none
    assert three.time_s == pytest.approx(0.4001 / 3)

    spike = "0,backward,1200,0.12,90\n"
    profile = read_profile(write(tmp_path, GOOD + 3 * "0,backward,1200,0.12,30\n" + spike))
    assert [(rejection.row.line, rejection.row.energy_j) for rejection in profile.rejected] == [(9, 90.0)]
    assert profile.measurements[0, "B"].energies_j.tolist() == [[40.0, 30.0]]


def test_rows_that_are_averages_themselves() -> None:
    """The pooled mean and standard deviation equal those of the runs behind the rows."""
    runs = [[0.10, 0.11, 0.12], [0.09, 0.10]]
    rows = [row(mean(part), samples=len(part), std=(stdev(part), math.nan)) for part in runs]
    found, _ = estimate(rows)
    pooled = [value for part in runs for value in part]
    assert found.num_samples == 5
    assert found.time_s == pytest.approx(mean(pooled), rel=1e-12)
    assert found.time_std_s == pytest.approx(stdev(pooled), rel=1e-12)
    assert math.isnan(found.energy_std_j)


def test_writing_and_reading_gives_the_same_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    lines = [f"{HEADER},gpu"]
    for stage in range(2):
        for kind in ("forward", "backward_input", "backward_weight", "load"):
            for clock_mhz in (1410, 1395, 855):
                lines += [
                    f"{stage},{kind},{clock_mhz},{time_s!r},{energy_j!r},{gpu}"
                    for gpu in ("GPU-0", "GPU,1")
                    for time_s, energy_j in rng.uniform((0.1, 10), (0.11, 11), (3, 2)).tolist()
                ]
    path = write(tmp_path, "\n".join(lines).replace("GPU,1", '"GPU,1"'))
    profile = read_profile(path)
    again = tmp_path / "again.csv"
    write_profile(profile, again)
    assert_same(read_profile(again), profile)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["again.csv", "profile.csv"]


def test_more_samples_than_a_row_may_have_are_read_again(tmp_path: Path) -> None:
    header, *rows = GOOD.splitlines()
    text = "\n".join([f"{header},samples,time_p90", *(f"{line},1000000000," for line in rows for _ in range(2))])
    profile = read_profile(write(tmp_path, text + "\n" + 2 * "0,clock_change,1200,0.01,,1000000000,0.02\n"))
    write_profile(profile, tmp_path / "again.csv")
    again = read_profile(tmp_path / "again.csv")
    assert again.measurements[0, "F"].num_samples.max() == again.clock_changes[0].num_samples[0] == 10**9


def test_an_unwritable_place_is_refused_and_left_alone(tmp_path: Path) -> None:
    profile = read_profile(write(tmp_path, GOOD))
    with pytest.raises(OutputError, match="cannot be written"):
        write_profile(profile, tmp_path / "missing" / "out.csv")
    with pytest.raises(OutputError, match="cannot be written"):
        write_profile(profile, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["profile.csv"]
    assert not list(tmp_path.parent.glob("*.tmp"))


def test_a_hundred_thousand_rows(tmp_path: Path) -> None:
    rows = GOOD.splitlines()[1:]
    profile = read_profile(write(tmp_path, "\n".join([HEADER, *(25_000 * rows)])))
    assert profile.measurements[0, "B"].num_samples.tolist() == [[25_000, 25_000]]


@pytest.mark.parametrize("p90_s", [0.02, MAX_CHANGE_S])
def test_a_change_of_clocks_may_take_as_long_as_any(p90_s: float, tmp_path: Path) -> None:
    header, *rows = GOOD.splitlines()
    text = "\n".join([f"{header},time_p90", *(f"{line}," for line in rows)]) + "\n"
    profile = read_profile(write(tmp_path, f"{text}0,clock_change,1200,0.02,,{p90_s}\n"))
    assert profile.clock_changes[0].clocks_mhz.tolist() == [1200]
    with pytest.raises(ProfileError, match="seconds up to 10"):
        read_profile(write(tmp_path, f"{text}0,clock_change,1200,0.02,,{MAX_CHANGE_S + 0.1}\n"))
