"""Requests of the page's forms and scripts: their fields, the form of the answer, and their names in audit records."""

import asyncio
from urllib.parse import parse_qs

from starlette.requests import Request

_MAX_FIELDS = 8
_FORM_S = 10.0
_ACTIONS = {
    "/budgets/set-load-target": "SetLoadTarget",
    "/budgets/clear-load-target": "ClearLoadTarget",
    "/login": "Login",
    "/logout": "Logout",
}


def action_of(request: Request) -> str:
    """The action that a request is counted and recorded as; where gRPC has the same, by the name of its method."""
    if request.method != "POST":
        return "WatchJob"
    return _ACTIONS.get(request.url.path, "SetTarget")


def wants_json(request: Request) -> bool:
    """Whether a script asks, and not a browser for a page."""
    return "text/html" not in request.headers.get("accept", "")


async def form_of(request: Request) -> dict[str, str]:
    """A form's fields; its length was checked as it came in, and it comes in soon."""
    try:
        async with asyncio.timeout(_FORM_S):
            body = await request.body()
        fields = parse_qs(body.decode("ascii"), max_num_fields=_MAX_FIELDS, strict_parsing=True)
    except (TimeoutError, ValueError):
        return {}
    return {name: values[-1] for name, values in fields.items()}
