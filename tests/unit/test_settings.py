"""Settings: which source wins, what is refused and how, and who never reads a file."""

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trustme

from perseus_dist.cli import main
from perseus_dist.cli.parser import build_parser
from perseus_dist.cli.settings import files
from perseus_dist.cli.settings.command_parser import command_parser
from perseus_dist.cli.settings.defaults import set_defaults
from perseus_dist.cli.settings.files import SettingsError, candidate_files, parse, read_file
from perseus_dist.cli.settings.keys import COMMAND_OF, is_path, is_switch, options_of, variable_of

Shown = dict[str, dict[str, Any]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Writes the ``system`` or the ``user`` file of a machine of its own."""
    paths = {"system": tmp_path / "etc/perseus.toml", "user": tmp_path / "home/perseus-dist/perseus.toml"}
    monkeypatch.setattr(files, "SYSTEM_FILE", paths["system"])
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    for variable in list(os.environ):
        if variable.startswith("PERSEUS_"):
            monkeypatch.delenv(variable)

    def write(which: str, text: str) -> Path:
        paths[which].parent.mkdir(parents=True, exist_ok=True)
        paths[which].write_text(text)
        paths[which].chmod(0o644)
        return paths[which]

    return write


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[[], Shown]:
    """What ``config --json`` says, by ``section.key``."""

    def show() -> Shown:
        assert main(["config", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        return {f"{one['section']}.{one['key']}": one for one in document["settings"]}

    return show


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a command that ends with 2 before it does anything."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("perseus-dist: ").strip()


def test_a_later_source_wins(
    place: Callable[[str, str], Path], shown: Callable[[], Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "planner.metrics-port"
    assert (shown()[key]["value"], shown()[key]["source"]) == (None, "default")
    system = place("system", '[planner]\n\nmetrics-port = 1001\nbind = "127.0.0.1:7"\n')
    assert (shown()[key]["value"], shown()[key]["file"], shown()[key]["line"]) == (1001, str(system), 3)
    user = place("user", "[planner]\nmetrics-port = 1002\n")
    assert (shown()[key]["value"], shown()[key]["file"], shown()[key]["line"]) == (1002, str(user), 2)
    assert shown()["planner.bind"]["file"] == str(system)
    monkeypatch.setenv("PERSEUS_PLANNER_METRICS_PORT", "1003")
    assert (shown()[key]["value"], shown()[key]["variable"]) == (1003, "PERSEUS_PLANNER_METRICS_PORT")
    assert shown()[key]["file"] is None

    parser = build_parser(["planner"])
    set_defaults(parser, ["planner"], os.environ)
    assert parser.parse_args(["planner"]).metrics_port == 1003
    args = parser.parse_args(["planner", "--metrics-port", "1004"])
    assert (args.metrics_port, args.bind) == (1004, "127.0.0.1:7")


def test_of_options_that_exclude_each_other_the_one_of_the_latest_source_counts(
    place: Callable[[str, str], Path], shown: Callable[[], Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    def values() -> tuple[object, object]:
        return shown()["planner.metrics"]["value"], shown()["planner.metrics-port"]["value"]

    def parsed(*words: str) -> tuple[object, object]:
        parser = build_parser(["planner"])
        set_defaults(parser, ["planner", *words], os.environ)
        args = parser.parse_args(["planner", *words])
        return args.metrics, args.metrics_port

    place("system", '[planner]\nmetrics = "127.0.0.1:9464"\n')
    assert parsed() == values() == ("127.0.0.1:9464", None)
    assert parsed("--metrics-port", "9500") == parsed("--metrics-port=9500") == (None, 9500)
    place("user", "[planner]\nmetrics-port = 1002\n")
    assert parsed() == values() == (None, 1002)
    assert parsed("--metrics", "127.0.0.1:7") == ("127.0.0.1:7", None)
    monkeypatch.setenv("PERSEUS_PLANNER_METRICS", "127.0.0.1:8")
    assert parsed() == values() == ("127.0.0.1:8", None)
    monkeypatch.setenv("PERSEUS_PLANNER_METRICS_PORT", "9")
    with pytest.raises(SettingsError, match="_METRICS_PORT: saw metrics and metrics-port, expected one of"):
        parsed()


def test_one_file_may_be_named_instead_of_both(
    place: Callable[[str, str], Path], shown: Callable[[], Shown], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place("system", "[planner]\nmetrics-port = 1001\n")
    place("user", "[planner]\nmetrics-port = 1002\n")
    named = tmp_path / "own.toml"
    named.write_text('[clockd]\ngroup = "gpu"\n')
    named.chmod(0o600)
    monkeypatch.setenv("PERSEUS_CONFIG", str(named))
    assert [one for one, document in shown().items() if document["source"] != "default"] == ["clockd.group"]
    monkeypatch.setenv("PERSEUS_CONFIG", "off")
    assert {document["source"] for document in shown().values()} == {"default"}


def test_existing_variables_are_aliases(
    place: Callable[[str, str], Path], shown: Callable[[], Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    place("system", '[client]\nplanner = "file:1"\ntoken-file = "token"\n')
    monkeypatch.setenv("PERSEUS_PLANNER", "alias:1")
    monkeypatch.setenv("PERSEUS_TOKEN_FILE", "")  # not set
    assert (shown()["client.planner"]["value"], shown()["client.planner"]["variable"]) == ("alias:1", "PERSEUS_PLANNER")
    assert shown()["client.token-file"]["source"] == "file"
    monkeypatch.setenv("PERSEUS_CLIENT_PLANNER", "own:1")
    assert shown()["client.planner"]["value"] == "own:1"


@pytest.mark.parametrize(
    "command",
    [
        *("jobs", "watch job", "target job --t-min", "straggler clear job --id a", "fetch job --profile a.csv"),
        *("policy show", "token list", "audit", "health", "doctor"),
    ],
)
def test_operators_commands_take_the_client_section(place: Callable[[str, str], Path], command: str) -> None:
    place("system", '[client]\nplanner = "planner.example:50151"\ntls-ca = "ca.pem"\ntoken-file = "t"\n')
    words = command.split()
    parser = build_parser([words[0]])
    set_defaults(parser, words, os.environ)
    args = parser.parse_args(words)
    assert args.planner == "planner.example:50151"
    assert args.tls_ca == files.SYSTEM_FILE.parent / "ca.pem", "relative to the file"


@pytest.mark.parametrize("command", ["backup file", "restore file", "check"])
def test_state_commands_look_where_the_planner_keeps_its_state(
    place: Callable[[str, str], Path], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place("system", '[planner]\nstate-dir = "kept"\njson = true\nlog-format = "json"\n[client]\nplanner = "a:1"\n')

    def state_dir(*more: str) -> Path:
        words = ["state", *command.split(), *more]
        parser = build_parser(["state"])
        set_defaults(parser, words, os.environ)
        args = parser.parse_args(words)
        assert not args.json
        assert isinstance(args.state_dir, Path)
        return args.state_dir

    assert state_dir() == files.SYSTEM_FILE.parent / "kept"
    monkeypatch.setenv("PERSEUS_PLANNER_STATE_DIR", "/by/variable")
    assert state_dir() == Path("/by/variable")
    assert state_dir("--state-dir", "/by/flag") == Path("/by/flag")


def test_a_setting_that_the_planner_refuses_keeps_its_state_from_no_command_without_a_word(
    place: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = place("system", "[planner]\nstate-dir = 7\n")
    assert f"{path}:2: planner.state-dir: saw 7" in refusal(capsys, "state", "check")


@pytest.mark.parametrize(
    "line",
    [
        *("health --clockd clockd.sock", "health --clockd=clockd.sock"),
        *("planner --embedded --address-file a", "agent", "report run", "release", "sim -- true", "planner --help"),
    ],
)
def test_what_training_starts_reads_no_file(place: Callable[[str, str], Path], line: str) -> None:
    place("system", "\0 no TOML")
    assert set_defaults(build_parser([line.split(maxsplit=1)[0]]), line.split(), os.environ) == ()


def test_paths_and_switches(
    place: Callable[[str, str], Path], shown: Callable[[], Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    user = place("user", '[planner]\ntls-key = "~/key"\ntls-cert = "../cert"\ninsecure = true\naddress-file = "/a"\n')
    values = {key: document["value"] for key, document in shown().items()}
    assert values["planner.tls-key"] == "/home/ann/key"
    assert values["planner.tls-cert"] == f"{user.parent}/../cert"
    assert (values["planner.address-file"], values["planner.insecure"]) == ("/a", True)
    monkeypatch.setenv("PERSEUS_PLANNER_INSECURE", "no")
    assert shown()["planner.insecure"]["value"] is False


REFUSED = {
    "[planer]\n": (":1", "[planer]", "[planner]"),
    "\n[planner]\nbnd = 1\n": (":3", "'bnd'", "'bind'"),
    "[planner]\nmetrics_port = 1\n": (":2", "'metrics_port'", "'metrics-port'"),
    "[client]\ntoken = 'abc'\n": (":2", "'token'", "'token-file'"),
    "[planner]\nembedded = true\n": (":2", "'embedded'", "no key"),
    "[planner]\nmetrics-port = 70000\n": (":2", "70000", "0 to 65535"),
    "[planner]\nmetrics-port = true\n": (":2", "saw true", "text or number"),
    "[planner]\nmetrics-port = [1]\n": (":2", "[1]", "text or number"),
    "[planner]\nmetrics-port = nan\n": (":2", "nan", "0 to 65535"),
    "[client]\nplanner = 1\n": (":2", "saw 1", "in quotes"),
    "[client]\nplanner = ''\n": (":2", "empty", "client.planner"),
    "[planner]\nsignals = 'a\\u0000'\n[clockd]\ngroup = \"a\\u0000\"\n": (":4", "NUL", "clockd.group"),
    "[planner]\ninsecure = 1\n": (":2", "saw 1", "true or false"),
    "[planner]\nstragglers = 'Act'\n": (":2", "'Act'", "'show'"),
    "[planner]\ntls-key = 1979-05-27\n": (":2", "tls-key", "text or number"),
    "[clockd]\nlease-s = 0.01\n": (":2", "0.01", "0.5 to 60"),
    "bind = 'a'\n": (":1", "'bind'", "[planner]"),
    "planner.bnd = 1\n": (":1", "'bnd'", "'bind'"),
    "planner = {bnd = 1}\n": ("perseus.toml: ", "'bnd'", "'bind'"),
    "[planner\n": ("line 1", "no TOML", "--check"),
    "[planner]\nbind = 'a'\nbind = 'b'\n": ("line 3", "no TOML", "--check"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_errors_name_file_line_and_remedy(
    place: Callable[[str, str], Path], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place("system", text)
    for words in (("config",), ("config", "--check", str(path))):
        line = refusal(capsys, *words)
        assert line.startswith(str(path))
        assert [part for part in REFUSED[text] if part not in line] == []


def test_a_variable_is_refused_by_its_name(
    place: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place("system", "[planner]\nmetrics-port = 1\n")
    monkeypatch.setenv("PERSEUS_PLANNER_METRICS_PORT", "x")
    assert refusal(capsys, "planner").startswith("$PERSEUS_PLANNER_METRICS_PORT: saw 'x'")
    monkeypatch.delenv("PERSEUS_PLANNER_METRICS_PORT")
    monkeypatch.setenv("PERSEUS_PLANNER_INSECURE", "maybe")
    assert "expected 1 or 0" in refusal(capsys, "planner")


def test_variables_that_are_no_settings_are_told_with_the_nearest(
    place: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("PERSEUS_PLANNER_BINDD", "PERSEUS_CLOCKD_MAX_MH", "PERSEUS_CLIENT_TOKENFILE", "PERSEUS_CLIENT_\x1b[2J")
    of_kubernetes = ("SERVICE_HOST", "SERVICE_PORT_GRPC", "PORT", "PORT_50151_TCP_ADDR")
    sound = ("PERSEUS_PLANNER_BIND", "PERSEUS_CLIENT_PLANNER", *(f"PERSEUS_PLANNER_{name}" for name in of_kubernetes))
    for name in (*names, *sound):
        monkeypatch.setenv(name, "127.0.0.1:1")
    path = place("system", '[client]\nplanner = "a:1"\n')
    for command in (["config"], ["config", "--json"], ["config", "--check", str(path)]):
        assert main(command) == 0
        told = capsys.readouterr().err.splitlines()
        assert told[0] == "perseus-dist: $PERSEUS_PLANNER_BINDD is no setting; the nearest is $PERSEUS_PLANNER_BIND"
        assert told[1].endswith("the nearest is $PERSEUS_CLOCKD_MAX_MHZ")
        assert told[3].endswith("$PERSEUS_CLIENT_TOKENFILE is no setting; the nearest is $PERSEUS_CLIENT_TOKEN_FILE")
        assert len(told) == len(names)
        assert "\x1b" not in "".join(told)


def test_a_commands_own_refusal_says_where_its_options_were_set(
    place: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = place("system", '[planner]\nbind = "0.0.0.0:1"\n')
    assert refusal(capsys, "planner").endswith(f"(--bind is from {path}:2)")
    assert f"{path}" not in refusal(capsys, "planner", "--bind", "1.1.1.1:1")


def test_another_commands_section_hinders_no_command(place: Callable[[str, str], Path]) -> None:
    place("system", "[clockd]\nlease-s = 'long'\nwho = 1\n[planner]\nmetrics-port = 1\n")
    (given,) = set_defaults(build_parser(["planner"]), ["planner"], os.environ)
    assert given.key == "metrics-port"


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_may_write_is_refused(
    place: Callable[[str, str], Path], mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place("user", "[planner]\nmetrics-port = 1\n")
    path.chmod(mode)
    assert f"{path} can be written by others (mode 0{mode:o}); chmod go-w it" in refusal(capsys, "planner")
    assert main(["config", "--check", str(path)]) == 0  # such as one in a repository
    assert "is refused where it is in force" in capsys.readouterr().err


def test_owners_are_this_user_and_root() -> None:
    def found(uid: int) -> os.stat_result:
        return os.stat_result((stat.S_IFREG | 0o644, 1, 1, 1, uid, 0, 1, 0, 0, 0))

    assert [bool(files.write_doubt(found(uid))) for uid in (0, os.geteuid(), os.geteuid() + 1)] == [False, False, True]


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "missing", "loop", "large", "binary", "utf16"])
def test_what_is_no_settings_file_is_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.toml"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "device":
            path = Path("/dev/zero")
        case "loop":
            path.symlink_to(path)
        case "large":
            path.write_bytes(b"#" * (1 << 21))
        case "binary":
            path.write_bytes(b"\xff\x00")
        case "utf16":
            path.write_text("[planner]\n", encoding="utf-16")
    if kind in ("large", "binary", "utf16"):
        path.chmod(0o644)
    monkeypatch.setenv("PERSEUS_CONFIG", str(path))
    assert str(path) in refusal(capsys, "planner")


def test_a_folder_that_may_not_be_looked_into_has_no_file(tmp_path: Path) -> None:
    assert read_file(tmp_path / "none/perseus.toml", must_exist=False) is None
    assert read_file(Path(__file__) / "perseus.toml", must_exist=False) is None
    if os.geteuid() != 0:  # root looks into every folder
        (tmp_path / "closed").mkdir(mode=0)
        assert read_file(tmp_path / "closed/perseus.toml", must_exist=False) is None
        with pytest.raises(SettingsError, match="Permission denied"):
            read_file(tmp_path / "closed/perseus.toml", must_exist=True)


def test_where_the_users_file_is() -> None:
    system = files.SYSTEM_FILE
    assert candidate_files({"HOME": "/h"}) == (system, Path("/h/.config/perseus-dist/perseus.toml"))
    assert candidate_files({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == candidate_files({"HOME": "/h"})
    assert candidate_files({"HOME": "/h", "XDG_CONFIG_HOME": "/c"})[1] == Path("/c/perseus-dist/perseus.toml")
    assert candidate_files({}) == (system,)


def test_tomllib_is_imported_where_a_file_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SYSTEM_FILE", tmp_path / "none")
    monkeypatch.delitem(sys.modules, "tomllib", raising=False)
    set_defaults(build_parser(["jobs"]), ["jobs"], {"HOME": str(tmp_path)})
    assert "tomllib" not in sys.modules


def test_no_key_holds_a_secret_itself_and_variables_are_distinct() -> None:
    names: list[str] = []
    for section, command in COMMAND_OF.items():
        for key, action in options_of(section, command_parser(command)).items():
            names.append(variable_of(section, key))
            if any(word in key for word in ("token", "key", "secret", "password")):
                assert is_path(action), key
            assert is_switch(action) or action.nargs is None
    assert len(set(names)) == len(names)


def test_what_a_worker_needs_may_stand_in_its_section(
    place: Callable[[str, str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A required option, which argparse asks for whatever its default is."""
    for text in ("", "[planning-worker]\nworkers = 4\n"):
        place("user", text)
        with pytest.raises(SystemExit):
            main(["planning-worker"])
        assert "required: --store" in capsys.readouterr().err
    file = place("user", '[planning-worker]\nstore = "postgresql://u@127.0.0.1:1/d"\nstore-password-file = "none"\n')
    assert f"--store-password-file is from {file}:3" in refusal(capsys, "planning-worker")
    check = tmp_path / "partial.toml"
    check.write_text("[planning-worker]\nworkers = 4\n")
    assert main(["config", "--check", str(check)]) == 0


def test_a_value_cannot_draw_on_the_terminal(
    place: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    place("user", '[client]\nplanner = "a\\n\\u001b[2J"\n')
    assert main(["config"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.count("\n") == 2 + sum(len(options_of(name, command_parser(COMMAND_OF[name]))) for name in COMMAND_OF)


def test_the_example_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[2] / "examples/perseus.toml"
    assert main(["config", "--check", str(example), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {one["section"] for one in document["settings"]} == set(COMMAND_OF)


@pytest.mark.parametrize("key", ["bind", "advertise", "metrics", "web"])
@pytest.mark.parametrize("value", ["x", "", "127.0.0.1", "127.0.0.1:65536", "a b:1", ":1"])
def test_an_address_that_the_planner_refuses_is_refused_by_a_check(
    key: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "perseus.toml"
    path.write_text(f'[planner]\n{key} = "{value}"\n')
    assert refusal(capsys, "config", "--check", str(path)).startswith(f"{path}:2: planner.{key}: ")
    with pytest.raises(SystemExit, match="2"):
        main(["planner", f"--{key}={value}"])
    assert f"argument --{key}: {value!r} is no address" in capsys.readouterr().err


def test_bounds_that_allow_no_clock_are_refused(
    place: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = place("system", "[clockd]\nmin-mhz = 1400\nmax-mhz = 300\n")
    said = refusal(capsys, "clockd")
    assert said.startswith("--min-mhz 1400 lies above --max-mhz 300")
    assert f"--max-mhz is from {path}:3" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[planner]\ntls-cert = "a.pem"', "saw one of --tls-cert and --tls-key"),
        ('[planner]\ntls-client-ca = "a.pem"', "--tls-client-ca needs"),
        ('[planner]\nbind = "0.0.0.0:50151"', "--bind 0.0.0.0:50151 is no loopback address"),
        ('[planner]\nweb = "0.0.0.0:50152"', "--web 0.0.0.0:50152 is no loopback address"),
        ('[planner]\nmetrics = "0.0.0.0:9464"', "--metrics 0.0.0.0:9464 is no loopback address"),
        ('[planner]\nmetrics-tls-cert = "a.pem"', "need --metrics HOST:PORT"),
        ('[planner]\nadvertise = "a:1"', "--advertise needs --store"),
        ('[planner]\ntls-cert = "a.pem"\ntls-key = "b.key"', "KEY_VALUES_MISMATCH"),
        (
            '[planner]\nmetrics-port = 0\nmetrics-tls-cert = "a.pem"\nmetrics-tls-key = "b.key"',
            "KEY_VALUES_MISMATCH",
        ),
        ("[clockd]\nmin-mhz = 1400\nmax-mhz = 300", "--min-mhz 1400 lies above --max-mhz 300"),
        ('[client]\nplanner = "host:\uff150151"', "is no address"),
        ('[client]\nplanner = "a:1,b"', "'b' is no address"),
        ('[client]\ntls-cert = "a.pem"', "saw one of --tls-cert and --tls-key"),
        ('[client]\ntls-cert = "a.pem"\ntls-key = "b.key"', "KEY_VALUES_MISMATCH"),
    ],
)
def test_what_commands_refuse_together_is_refused_by_a_check(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        issued = trustme.CA().issue_cert("localhost")
        issued.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
        issued.private_key_pem.write_to_path(tmp_path / f"{name}.key")
    path = tmp_path / "perseus.toml"
    path.write_text(f"{text}\n", encoding="utf-8")
    line = refusal(capsys, "config", "--check", str(path))
    assert line.startswith(f"{path}: [")
    assert said in line


def test_files_that_are_not_where_a_check_is_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "perseus.toml"
    path.write_text('[client]\ntls-ca = "missing.pem"\n')
    assert main(["config", "--check", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}: 1 setting, no errors\n"
    assert err == "perseus-dist: the files of client.tls-ca cannot be read here, and were not checked\n"


def test_bytes_of_all_kinds_are_read_or_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, path = Random(5), tmp_path / "perseus.toml"
    sound = (Path(__file__).parents[2] / "examples/perseus.toml").read_bytes()
    refused = 0
    for _ in range(60):
        data = bytearray(sound)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(3)] = rng.choice(
                (b"\xff", b"\n", b"=", b'"', b"[", b"\0", b"{", b"x", b"9" * 99)
            )
        path.write_bytes(bytes(data))
        code = main(["config", "--check", str(path)])
        refused += code == 2
        assert code in (0, 2)
        assert capsys.readouterr().err.count("\n") <= 1 + (path.stat().st_mode & 0o22 != 0)
    assert refused > 20
    with pytest.raises(SettingsError, match="no TOML"):
        parse(path, b"a = " + b"[" * 100_000)
