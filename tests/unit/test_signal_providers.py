"""Providers of signals over HTTP, by real servers on loopback: what they answer, and what happens where they do not."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from waiting import wait_until

from perseus_dist.errors import PlanningError
from perseus_dist.planner.runtime.signals.fetched_signal import FetchedSignal
from perseus_dist.planner.runtime.signals.kept_answer import KeptAnswer
from perseus_dist.planner.runtime.signals.signal_files import SignalFiles
from perseus_dist.policies.provider import Provider, read_provider
from perseus_dist.policies.signal_text import Piece
from perseus_dist.policies.signals import read_signal
from perseus_dist.policies.tariff import Tariff

HOUR = datetime(2026, 11, 23, tzinfo=UTC)
MAPS = {"zone": "X", "forecast": [{"carbonIntensity": 400, "datetime": "2026-11-23T00:00:00.000Z"}]}


@dataclass
class FakeProvider:
    """A server that answers whatever it is told to."""

    body: bytes = json.dumps(MAPS).encode()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    dripped_s: float = 0.0
    num_dripped: int = 0
    may_answer: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def server() -> Iterator[FakeProvider]:
    provider = FakeProvider()
    provider.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            provider.may_answer.wait(60)
            self.send_response(provider.status)
            for name, value in {"Content-Length": str(len(provider.body)), **provider.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for sign in [provider.body[i : i + 1] for i in range(len(provider.body))] if provider.dripped_s else []:
                    self.wfile.write(sign)
                    provider.num_dripped += 1
                    time.sleep(provider.dripped_s)
                if not provider.dripped_s:
                    self.wfile.write(provider.body)
            except OSError:
                pass  # who asked has gone

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        provider.url = f"http://127.0.0.1:{listening.server_port}"
        try:
            yield provider
        finally:
            provider.may_answer.set()
            listening.shutdown()
            thread.join()


def provider_file(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "provider.toml").write_text(text)
    return folder / "provider.toml"


def test_a_provider_is_asked_with_the_time_and_its_token(tmp_path: Path, server: FakeProvider) -> None:
    (tmp_path / "token").write_text("s3cret/+\n")
    token = f'token_file = "{tmp_path}/token"\n'
    by_header = f'url = "{server.url}/intensity/{{now}}/fw48h"\n{token}token_header = "auth-token"'
    assert read_signal(provider_file(tmp_path / "signals", by_header)) == (
        Piece(start=HOUR, duration_s=3600, value=400, forecast=400, is_actual=False),
    )
    path, headers = server.requests[-1]
    now = datetime.strptime(path, "/intensity/%Y-%m-%dT%H:%MZ/fw48h").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - now).total_seconds()) < 120
    assert headers["auth-token"] == "s3cret/+"
    item = {"name": "n", "energyratestructure": [[{"rate": -0.01}]]}
    schedules = {"energyweekdayschedule": [[0] * 24] * 12, "energyweekendschedule": [[0] * 24] * 12}
    server.body = json.dumps({"items": [{**item, **schedules}]}).encode()
    by_parameter = f'url = "{server.url}/rates?getpage=1"\n{token}token_parameter = "api_key"'
    assert isinstance(read_signal(provider_file(tmp_path / "signals", by_parameter)), Tariff)
    path, headers = server.requests[-1]
    assert path == "/rates?getpage=1&api_key=s3cret%2F%2B"
    assert "auth-token" not in headers


def test_loopback_is_asked_without_the_proxy_and_others_by_it(
    tmp_path: Path, server: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no token that may go to loopback alone goes to a proxy."""
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert read_signal(provider_file(tmp_path, f'url = "{server.url}"'))
    monkeypatch.setenv("http_proxy", server.url)
    assert read_signal(provider_file(tmp_path, 'url = "http://provider.invalid/day"'))
    assert [path for path, _ in server.requests] == ["/", "http://provider.invalid/day"]


@pytest.mark.parametrize(
    ("status", "body", "headers", "said"),
    [
        (401, b'{"error": "no s3cret"}', {}, "127.0.0.1: answers 401 Unauthorized"),
        (302, b"", {"Location": "http://127.0.0.1:9/"}, "127.0.0.1: answers 302 Found"),
        (500, b"x" * 9999, {}, "answers 500"),
        (200, b"", {}, "expected timestamp, duration and value"),
        (200, b"\xff\xfe", {}, "no text"),
        (200, b'{"forecast": [', {}, "Expecting value"),
        (200, json.dumps(MAPS).encode(), {"Content-Length": "9999"}, "saw the end of the answer too early"),
        (200, b"1\r\n", {"Transfer-Encoding": "chunked"}, "127.0.0.1: "),
        (200, b'{"forecast": [{"carbonIntensity": "\\n", "datetime": "2026-11-23T00:00Z"}]}', {}, "carbonIntensity"),
    ],
)
def test_what_is_no_answer_is_refused_in_a_line(
    tmp_path: Path, server: FakeProvider, status: int, body: bytes, headers: dict[str, str], said: str
) -> None:
    server.status, server.body, server.headers = status, body, headers
    with pytest.raises(PlanningError, match=said) as refusal:
        read_signal(provider_file(tmp_path, f'url = "{server.url}/?key=s3cret"\ntimeout_s = 5'))
    assert "\n" not in str(refusal.value)
    assert "s3cret" not in str(refusal.value)
    assert len(server.requests) == 1


@pytest.fixture(params=[b"HTTP/1.1 100 Continue\r\n\r\n", b"H"])
def dripping_head(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of a server whose answer never comes to its head, or never to the end of its first line."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connected, _ = listening.accept()
            with connected, suppress(OSError):
                until_s = time.monotonic() + 60
                while time.monotonic() < until_s:
                    connected.sendall(request.param)
                    time.sleep(0.02)

        threading.Thread(target=drip, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_who_answers_too_slowly_or_not_at_all_is_not_waited_for(
    tmp_path: Path, server: FakeProvider, dripping_head: str
) -> None:
    server.dripped_s = 0.05  # a byte at a time, each well within the timeout
    server.body = b" " * 1200
    with pytest.raises(PlanningError, match=r"127.0.0.1: no answer within 0.3 s"):
        read_signal(provider_file(tmp_path, f'url = "{server.url}"\ntimeout_s = 0.3'))
    assert server.num_dripped < len(server.body)
    with pytest.raises(PlanningError, match=r"127.0.0.1: no answer within 0.3 s"):
        read_signal(provider_file(tmp_path, f'url = "{dripping_head}"\ntimeout_s = 0.3'))
    with pytest.raises(PlanningError, match=r"127.0.0.1: Connection refused"):
        read_signal(provider_file(tmp_path, 'url = "http://127.0.0.1:1/"'))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "saw no url"),
        ("url = 3", "url: expected a text"),
        ('url = "ftp://host/"', "url: saw no address"),
        ('url = "http://a:b@host/"', "without a user's name"),
        ('url = "http://host:port/"', "Port could not be cast"),
        ('url = "http://host/"\nurls = 3', "saw 'urls', expected url, token_file"),
        ('url = "http://host/"\nevery_s = 0.5', "every_s: saw 0.5, expected a number from 1 to 86400"),
        ('url = "http://host/"\nevery_s = true', "every_s: saw True"),
        ('url = "http://host/"\ntimeout_s = 11', "timeout_s: saw 11, expected a number from 0.1 to 10"),
        ('url = "http://host/"\nstale_s = 60', "stale_s: saw 60, expected every_s, 900, or more"),
        ('url = "http://host/"\ntoken_header = "a"', "saw no token_file"),
        ('url = "https://host/"\ntoken_file = "/a/b"', "expected either token_header or token_parameter"),
        ('url = "https://host/"\ntoken_file = "/a/b"\ntoken_header = "a: b"', "A-Z a-z 0-9"),
        ('url = "https://host/"\ntoken_file = "b"\ntoken_header = "a"', "token_file: expected an absolute path"),
        ('url = "https://host/"\ntoken_file = "FOLDER/b"\ntoken_header = "a"', "in another folder"),
        ('url = "http://host/"\ntoken_file = "/a/b"\ntoken_header = "a"', "expected https"),
        ("url = ", "Invalid value"),
        ('url = "http://host/\\u0007"', "printable ASCII"),
    ],
)
def test_what_names_no_provider_is_refused_in_a_line(tmp_path: Path, text: str, said: str) -> None:
    file = provider_file(tmp_path, text.replace("FOLDER", str(tmp_path)))
    with pytest.raises(PlanningError, match=said) as refusal:
        read_provider(file)
    assert "\n" not in str(refusal.value)


def test_an_answer_counts_until_it_is_stale(server: FakeProvider) -> None:
    now_s = 0.0
    signal = FetchedSignal(Provider(url=server.url, every_s=100, stale_s=250), clock=lambda: now_s)
    first = signal.look(wait_s=10)
    assert first.trouble == ""
    assert isinstance(first.content, tuple)
    now_s = 99
    assert signal.look() == first
    assert len(server.requests) == 1
    now_s = 100
    assert signal.look(wait_s=10).content is first.content  # asked again, and told the same: no other signal
    assert len(server.requests) == 2
    server.status = 503
    now_s = 200
    failed = signal.look(wait_s=10)
    assert failed.content is first.content
    assert "127.0.0.1: answers 503 Service Unavailable" in failed.trouble
    now_s = 259
    assert signal.look().content is first.content
    assert len(server.requests) == 3
    now_s = 350  # the answer of 100 s is as old as it may be
    stale = signal.look(wait_s=10)
    assert (stale.content, len(server.requests)) == (None, 4)
    assert "is stale: 127.0.0.1: answers 503" in stale.trouble
    server.status, server.body = 200, server.body.replace(b"400", b"500")
    now_s = 410  # a minute behind a failure
    back = signal.look(wait_s=10)
    assert isinstance(back.content, tuple)
    assert (back.content[0].value, back.trouble) == (500, "")


def test_a_planner_that_restarts_goes_on_with_the_last_answer_until_it_is_stale(
    tmp_path: Path, server: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "state"
    (signals := tmp_path / "signals").mkdir()
    provider_file(signals, f'url = "{server.url}"\nevery_s = 100\nstale_s = 250')
    before = SignalFiles(signals, kept)
    before.refresh(["provider.toml"], "provider.toml")
    answer = before.signals["provider.toml"].content
    assert answer is not None
    wait_until((kept / "provider.toml").exists)
    server.status = 503
    server.may_answer.clear()
    after = SignalFiles(signals, kept)
    after.refresh(["provider.toml"])
    known = after.signals["provider.toml"]
    assert known.content == answer
    assert re.fullmatch(
        r"signal provider.toml: its last answer is of 20\S+: 127.0.0.1 has not answered yet", known.trouble
    )
    after.refresh(["provider.toml"])
    wait_until(lambda: len(server.requests) == 2)
    assert after.signals["provider.toml"].content == answer
    server.may_answer.set()

    def says_that_it_failed() -> bool:
        after.refresh(["provider.toml"])
        return "answers 503" in after.signals["provider.toml"].trouble

    wait_until(says_that_it_failed)
    assert after.signals["provider.toml"].content == answer
    server.may_answer.clear()
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + 249)
    assert FetchedSignal(provider_of(signals), KeptAnswer(kept, "provider.toml")).look().content == answer
    monkeypatch.setattr(time, "time", lambda: now_s + 251)
    stale = FetchedSignal(provider_of(signals), KeptAnswer(kept, "provider.toml")).look()
    assert stale.content is None
    assert "is stale: 127.0.0.1 has not answered yet" in stale.trouble
    monkeypatch.setattr(time, "time", lambda: now_s - 86_400)  # the clock was set back
    assert FetchedSignal(provider_of(signals), KeptAnswer(kept, "provider.toml")).look().content is None


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]\n", b"null\n1", b'{"provider": "x", "asked_unix_s": NaN}\n', b"\xff"]
)
def test_an_answer_that_is_damaged_or_another_providers_is_left_alone(
    tmp_path: Path, server: FakeProvider, text: bytes
) -> None:
    server.status = 503
    kept = KeptAnswer(tmp_path / "state", "provider.toml")
    other, provider = (Provider(url=f"{server.url}{path}") for path in ("/other", ""))
    kept.write(other, server.body, time.time())
    assert kept.read(other) is not None
    assert kept.read(provider) is None
    (tmp_path / "state" / "provider.toml").write_bytes(text)
    assert kept.read(other) is None
    (tmp_path / "state" / "provider.toml").unlink()
    (tmp_path / "state" / "provider.toml").mkdir()
    kept.write(other, server.body, time.time())  # said in the log
    assert FetchedSignal(other, kept).look(wait_s=10).content is None


def provider_of(folder: Path) -> Provider:
    return read_provider(folder / "provider.toml")


def test_a_planner_never_waits_for_a_provider_but_where_it_is_told_to(tmp_path: Path, server: FakeProvider) -> None:
    server.dripped_s = 0.02
    provider_file(tmp_path, f'url = "{server.url}"')
    (tmp_path / "day.csv").write_text("timestamp,duration,value\n2026-11-23T00:00:00+00:00,30,5\n")
    files = SignalFiles(tmp_path)
    files.refresh(["provider.toml", "day.csv"])
    assert files.signals["day.csv"].content is not None
    assert files.signals["provider.toml"].content is None
    assert files.signals["provider.toml"].trouble == "signal provider.toml: 127.0.0.1 has not answered yet"
    files.refresh(["provider.toml", "day.csv"], "provider.toml")
    known = files.signals["provider.toml"]
    assert known.content is not None
    assert len({signal.version for signal in files.signals.values()}) == 2
    files.refresh(["provider.toml"])
    assert files.signals["provider.toml"] == known
    assert len(server.requests) == 1
    provider_file(tmp_path, f'url = "{server.url}/other"')
    files.refresh(["provider.toml"], "provider.toml")
    assert server.requests[-1][0] == "/other"
    assert files.signals["provider.toml"].version > known.version
    provider_file(tmp_path, "url = ")
    files.refresh(["provider.toml"], "provider.toml")
    assert files.signals["provider.toml"].content is None
    assert "Invalid value" in files.signals["provider.toml"].trouble


def test_the_page_shows_a_provider(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "price.md").read_text()
    text = page.split("```toml\n")[1].split("```")[0]
    provider = read_provider(provider_file(tmp_path, text))
    assert (provider.host, provider.token_header) == ("api.electricitymap.org", "auth-token")


def test_commands_import_no_client_before_a_provider_is_asked() -> None:
    script = "import sys, perseus_dist.cli.main; print({'urllib.request', 'http.client'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
