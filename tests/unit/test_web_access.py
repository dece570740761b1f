"""Who may look and change: hosts, origins, forms, logins and their end."""

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse, Response

from perseus_dist.planner.access.refusal import RefusalError
from perseus_dist.planner.web import sessions
from perseus_dist.planner.web.protection import HEADERS, MAX_BODY_BYTES, Protection
from perseus_dist.planner.web.sessions import Sessions

TOKEN_SHA256 = "a" * 64


def asked(
    method: str, url: str = "http://localhost:80/", *, is_loopback: bool = True, **options: Any
) -> httpx.Response:
    app = Protection(PlainTextResponse("inside"), is_loopback=is_loopback)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as client:
            return await client.request(method, url, **options)

    return asyncio.run(ask())


def test_every_answer_has_the_headers_also_a_refusal() -> None:
    for answer in (asked("GET"), asked("GET", "http://evil.example/")):
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
    assert "'unsafe" not in HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "localhost:8080", "127.0.0.2:8080"])
def test_loopback_names_are_served(host: str) -> None:
    assert asked("GET", f"http://{host}/").text == "inside"


@pytest.mark.parametrize("host", ["evil.example", "192.0.2.1", "localhost.a", "127.0.0.1.a", "", "[", "a:b"])
def test_another_name_for_the_loopback_address_is_refused(host: str) -> None:
    assert asked("GET", headers={"Host": host}).status_code == 421
    assert asked("GET", headers={"Host": host}, is_loopback=False).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:8080"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Length": str(MAX_BODY_BYTES + 1)}, 413),
        ({"Content-Length": "-1"}, 413),
    ],
)
def test_a_form_of_another_site_or_of_any_length_is_refused(headers: dict[str, str], status: int) -> None:
    assert asked("POST", content=b"a=b", headers=headers).status_code == status


def test_a_form_without_a_length_is_refused() -> None:
    async def body() -> Any:
        yield b"a=b"

    assert asked("POST", content=body()).status_code == 413


@dataclass(slots=True)
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def session_of(response: Response) -> str:
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    return cookie.partition("=")[2].partition(";")[0]


def test_a_login_is_its_users_and_ends() -> None:
    clock, response = Clock(), Response()
    logins = Sessions(port=1, is_secure=False, now_s=clock)
    logins.begin(response, TOKEN_SHA256, uid=1000)
    name = session_of(response)
    found = logins.find(name, 1000)
    assert found is not None
    assert found.token_sha256 == TOKEN_SHA256
    assert logins.find(name, 1001) is None
    assert logins.find("guessed", 1000) is None
    clock.now_s = sessions.LIFETIME_S
    assert logins.find(name, 1000) is None


def test_a_login_is_over_after_logout_and_with_tls_its_cookie_is_secure() -> None:
    logins, response = Sessions(port=1, is_secure=True), Response()
    logins.begin(response, TOKEN_SHA256, uid=None)
    assert response.headers["set-cookie"].startswith("__Host-")
    assert "Secure" in response.headers["set-cookie"]
    name = session_of(response)
    logins.end(Response(), name)
    assert logins.find(name, None) is None


def test_logins_are_bounded_and_those_that_are_over_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)
    monkeypatch.setattr(sessions, "MAX_SESSIONS_OF_TOKEN", 3)
    clock = Clock()
    logins = Sessions(port=1, is_secure=False, now_s=clock)
    for _ in range(2):
        logins.begin(Response(), TOKEN_SHA256, uid=1)
    with pytest.raises(RefusalError):
        logins.begin(Response(), TOKEN_SHA256, uid=1)
    clock.now_s = sessions.LIFETIME_S + 1
    logins.begin(Response(), TOKEN_SHA256, uid=1)


def test_of_one_tokens_logins_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS_OF_TOKEN", 2)
    logins, names = Sessions(port=1, is_secure=False), []
    for _ in range(3):
        response = Response()
        logins.begin(response, TOKEN_SHA256, uid=1)
        names.append(session_of(response))
    assert [logins.find(name, 1) is not None for name in names] == [False, True, True]
