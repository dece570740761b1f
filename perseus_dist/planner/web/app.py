"""The page's addresses: which request is answered by which document, form or stream."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import jinja2
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from perseus_dist.messages.terms import T_MIN
from perseus_dist.planner.access.auth import Caller
from perseus_dist.planner.access.grants import Role
from perseus_dist.planner.access.refusal import RefusalError, invalid, is_recorded, unauthenticated
from perseus_dist.planner.runtime.job_actor import JobActor
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.operator_calls import OperatorCalls, owner_of
from perseus_dist.planner.runtime.policy_calls import PolicyCalls
from perseus_dist.planner.web.access import Visitor, WebAccess, may_change, may_view
from perseus_dist.planner.web.assets import Asset
from perseus_dist.planner.web.forms import action_of, form_of, wants_json
from perseus_dist.planner.web.fragments import Fragments
from perseus_dist.planner.web.load_targets import load_target_of, named_load_target
from perseus_dist.planner.web.protection import Protection
from perseus_dist.planner.web.replicas import Replicas
from perseus_dist.planner.web.streams import Streams
from perseus_dist.planner.web.targets import chosen_target
from perseus_dist.planner.web.views.diary import Diary
from perseus_dist.planner.web.views.fleet import MAX_ROWS, planning_words
from perseus_dist.planner.web.views.frontier_chart import choices_document
from perseus_dist.planner.web.views.wording import target_words
from perseus_dist.rpc.violations import InvalidMessageError

_ROWS_AT_ONCE = 16
_STATUSES = {
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.INVALID_ARGUMENT: 422,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
}

_Handler = Callable[[Request], Awaitable[Response]]
_log = logging.getLogger(__name__)


class Page:
    """Handlers of all requests."""

    def __init__(
        self,
        *,
        jobs: Jobs,
        operators: OperatorCalls,
        policies: PolicyCalls,
        access: WebAccess,
        templates: jinja2.Environment,
        assets: dict[str, Asset],
        diary: Diary,
        origin: tuple[str, int],
    ) -> None:
        """Begin; ``application`` serves them. ``origin`` is scheme and port."""
        self._jobs = jobs
        self._operators = operators
        self._policies = policies
        self._access = access
        self._templates = templates
        self._assets = assets
        self._diary = diary
        scheme, port = origin
        self._replicas = Replicas(jobs.ownership, scheme=scheme, port=port)
        self._fragments = Fragments(templates, diary)
        self._streams = Streams(jobs, self._fragments)

    def application(self, *, is_loopback: bool) -> ASGIApp:
        """The page as an ASGI application."""
        routes = [
            Route("/", self._guarded(self.fleet)),
            Route("/elsewhere", self._guarded(self.elsewhere)),
            Route("/nodes", self._guarded(self.nodes)),
            Route("/nodes/events", self._guarded(self.nodes_events)),
            Route("/node", self._guarded(self.node)),
            Route("/node/events", self._guarded(self.node_events)),
            Route("/budgets", self._guarded(self.budgets)),
            Route("/budgets/events", self._guarded(self.budgets_events)),
            Route("/budgets/set-load-target", self._guarded(self.set_load_target), methods=["POST"]),
            Route("/budgets/clear-load-target", self._guarded(self.clear_load_target), methods=["POST"]),
            Route("/jobs/{job_id}", self._guarded(self.job)),
            Route("/jobs/{job_id}/choices", self._guarded(self.choices)),
            Route("/jobs/{job_id}/target", self._guarded(self.set_target), methods=["POST"]),
            Route("/events", self._guarded(self.fleet_events)),
            Route("/jobs/{job_id}/events", self._guarded(self.job_events)),
            Route("/login", self._guarded(self.login), methods=["GET", "POST"]),
            Route("/logout", self._guarded(self.logout), methods=["POST"]),
            Route("/static/{name}", self.static),
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: self._http_error})
        return Protection(app, is_loopback=is_loopback)

    # ---- what is looked at -------------------------------------------------------------------------------------------

    async def fleet(self, request: Request) -> Response:
        """All jobs that the caller may see."""
        visitor = self._known(request)
        actors = self._visible(visitor)
        rows: list[tuple[str, str]] = []
        for actor in actors[:MAX_ROWS]:
            rows.append((actor.job.job_id, self._fragments.row(actor)[1]))
            if len(rows) % _ROWS_AT_ONCE == 0:
                await asyncio.sleep(0)  # agents first
        return self._html(
            "fleet.html",
            visitor,
            rows=rows,
            num_jobs=len(actors),
            planning=planning_words(self._jobs.shared_planning),
            own_address=self._replicas.own_address,
            others=self._replicas.others(),
            **await self._jobs_elsewhere(visitor),
        )

    async def elsewhere(self, request: Request) -> Response:
        """Jobs of other replicas that the caller may see, for the document of the fleet."""
        visitor = self._known(request)
        return self._html("elsewhere.html", visitor, **await self._jobs_elsewhere(visitor))

    async def job(self, request: Request) -> Response:
        """One job, or the replica that has it."""
        visitor = self._known(request)
        actor = await self._opened(visitor, Role.VIEW, request)
        sections = await self._fragments.sections(actor)
        return self._html(
            "job.html",
            visitor,
            job_id=actor.job.job_id,
            sections=sections,
            may_change=may_change(visitor.caller, actor),
            choices=choices_document(actor.job),
        )

    async def nodes(self, request: Request) -> Response:
        """GPUs of the jobs that the caller may see, by node."""
        visitor = self._known(request)
        return self._html("nodes.html", visitor, section=self._nodes_section(visitor))

    async def node(self, request: Request) -> Response:
        """One node, as far as jobs that the caller may see are on it."""
        visitor = self._known(request)
        host = request.query_params.get("host", "")
        return self._html("node.html", visitor, host=host, section=self._node_section(visitor, host))

    async def budgets(self, request: Request) -> Response:
        """Power budgets and price policies of jobs that the caller may see."""
        visitor = self._known(request)
        await self._policies.locate()
        return self._html("budgets.html", visitor, section=self._budgets_section(visitor))

    async def choices(self, request: Request) -> Response:
        """Answer with the targets that the slider of a job's page offers, as JSON."""
        actor = await self._opened(self._known(request), Role.VIEW, request)
        return JSONResponse(choices_document(actor.job))

    async def fleet_events(self, request: Request) -> Response:
        """Rows as they change."""
        visitor = self._known(request)
        return self._streams.fleet(visitor.caller.owner, lambda: self._visible_now(request))

    async def nodes_events(self, request: Request) -> Response:
        """The section of all nodes as it changes."""
        return self._section_events(request, "nodes", self._nodes_section)

    async def node_events(self, request: Request) -> Response:
        """A node's section as it changes."""
        host = request.query_params.get("host", "")
        return self._section_events(request, "node", lambda visitor: self._node_section(visitor, host))

    async def budgets_events(self, request: Request) -> Response:
        """The section of budgets and price policies as it changes."""
        return self._section_events(request, "budgets", self._budgets_section)

    async def job_events(self, request: Request) -> Response:
        """Sections as they change."""
        visitor = self._known(request)
        actor = await self._opened(visitor, Role.VIEW, request)

        def visible() -> list[JobActor] | None:
            now = self._now(request)
            is_there = self._jobs.get(actor.job.job_id) is actor
            return [actor] if is_there and now is not None and may_view(now.caller, actor) else None

        return self._streams.job(visitor.caller.owner, actor.job.job_id, visible)

    async def static(self, request: Request) -> Response:
        """A style or a module."""
        asset = self._assets.get(request.path_params["name"])
        if asset is None:
            return Response(status_code=404)
        headers = {"ETag": f'"{asset.digest}"', "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(asset.content, media_type=asset.media_type, headers=headers)

    # ---- what is changed ---------------------------------------------------------------------------------------------

    async def set_target(self, request: Request) -> Response:
        """Another target, judged as the operators' call of gRPC is."""
        visitor = self._known(request)
        form = await form_of(request)
        self._access.require_form(visitor, form.get("csrf", ""))
        # A caller who may not change a job hears that, and not which frontier is in force.
        actor = await self._opened(visitor, Role.OPERATE, request)
        event = chosen_target(actor.job, form)
        self._jobs.counters.calls["SetTarget"] += 1
        self._diary.look(actor)
        await self._operators.change(visitor.caller, actor.job.job_id, event)
        self._diary.look(actor)
        await self._fragments.sections(actor, at_once=True)
        if wants_json(request):
            return JSONResponse({"accepted": True, "sentence": target_words(actor.job.target)})
        return RedirectResponse(f"/jobs/{actor.job.job_id}", 303)

    async def set_load_target(self, request: Request) -> Response:
        """A load target of a budget, judged as the operators' call of gRPC is."""
        visitor, form = await self._policy_form(request)
        await self._policies.set_load_target(visitor.caller, load_target_of(form, time.time()))
        return _policy_changed(request)

    async def clear_load_target(self, request: Request) -> Response:
        """The end of one."""
        visitor, form = await self._policy_form(request)
        await self._policies.clear_load_target(visitor.caller, *named_load_target(form))
        return _policy_changed(request)

    async def login(self, request: Request) -> Response:
        """The form for a token; and the token."""
        visitor = self._now(request) or self._access.without_token(request)
        if request.method != "POST":
            return self._html("login.html", visitor, refused="")
        form = await form_of(request)
        self._access.require_form(visitor, form.get("csrf", ""))
        token = form.get("token", "").strip()
        caller = self._access.caller_of(token, request)
        if not token or not await self._opens_any(caller):
            self._access.record_refusal(caller, action_of(request), "", "unknown token")
            known = "that this replica knows of" if self._replicas.own_address else "of this planner"
            refused = f"this token opens no job {known}, and is not the operator's"
            return self._html("login.html", visitor, status=403, refused=refused)
        response = RedirectResponse("/", 303)
        if visitor.session_id:
            self._access.sessions.end(response, visitor.session_id)
        self._access.sessions.begin(response, caller.token_sha256, self._access.uid_of(request))
        return response

    async def logout(self, request: Request) -> Response:
        """The end of a login."""
        visitor = self._now(request) or self._access.without_token(request)
        form = await form_of(request)
        self._access.require_form(visitor, form.get("csrf", ""))
        response = RedirectResponse("/login", 303)
        self._access.sessions.end(response, visitor.session_id)
        return response

    async def _policy_form(self, request: Request) -> tuple[Visitor, dict[str, str]]:
        """Who sends a form that changes a policy, and the form; of several replicas the one that keeps policies."""
        visitor = self._known(request)
        form = await form_of(request)
        self._access.require_form(visitor, form.get("csrf", ""))
        self._jobs.counters.calls[action_of(request)] += 1
        await self._policies.locate()
        return visitor, form

    # ---- shared ------------------------------------------------------------------------------------------------------

    def _known(self, request: Request) -> Visitor:
        visitor = self._access.visitor(request)
        if not visitor.is_known:
            raise unauthenticated("this planner wants a token: log in with the one of your jobs, or the operator's")
        return visitor

    def _now(self, request: Request) -> Visitor | None:
        """The caller of a stream, which may have logged out since; None if the token counts no more."""
        try:
            return self._access.visitor(request)
        except RefusalError:
            return None

    def _visible(self, visitor: Visitor) -> list[JobActor]:
        """Jobs that the caller may see, those that are over last."""
        actors = [actor for actor in self._jobs.all() if may_view(visitor.caller, actor)]
        return sorted(actors, key=lambda actor: actor.job.phase == "done")

    def _visible_now(self, request: Request) -> list[JobActor] | None:
        """Jobs that the caller of a stream may see by now; None once the caller is not logged in any more."""
        now = self._now(request)
        return None if now is None or not now.is_known else self._visible(now)

    def _section_events(self, request: Request, name: str, render: Callable[[Visitor], str]) -> Response:
        """A stream of what ``render`` makes for the caller, who may have other rights by then."""
        visitor = self._known(request)

        def render_now() -> str | None:
            now = self._now(request)
            return render(now) if now is not None and now.is_known else None

        return self._streams.section(visitor.caller.owner, name, render_now)

    def _nodes_section(self, visitor: Visitor) -> str:
        jobs = (actor.job for actor in self._visible(visitor))
        return self._fragments.nodes(jobs, self._jobs.nodes.visible(visitor.caller))

    def _node_section(self, visitor: Visitor, host: str) -> str:
        jobs = (actor.job for actor in self._visible(visitor))
        return self._fragments.node(jobs, self._jobs.nodes.visible(visitor.caller), host)

    def _budgets_section(self, visitor: Visitor) -> str:
        jobs = {actor.job.job_id: actor.job for actor in self._visible(visitor)}
        csrf = self._access.csrf_token(visitor)
        budgets = self._jobs.budgets if self._policies.are_here else None
        return self._fragments.budgets(budgets, visitor.caller, jobs, csrf)

    async def _jobs_elsewhere(self, visitor: Visitor) -> dict[str, Any]:
        jobs = await self._replicas.jobs(visitor.caller)
        read = self._replicas.num_read
        return {"elsewhere": jobs, "num_read": read, "max_rows": MAX_ROWS, "no_target": T_MIN}

    async def _opened(self, visitor: Visitor, role: Role, request: Request) -> JobActor:
        """The job of a request; of several replicas, the one that has it goes on."""
        job_id = request.path_params["job_id"]
        if self._jobs.get(job_id) is None:
            await self._operators.locate(job_id)
        return self._operators.opened(visitor.caller, role, job_id)

    async def _opens_any(self, caller: Caller) -> bool:
        if caller.is_operator or caller.grants or any(owner_of(actor) == caller.owner for actor in self._jobs.all()):
            return True
        elsewhere = await self._replicas.jobs(caller)
        return any(job.registered.token_sha256 == caller.owner for job, _ in elsewhere)

    def _html(self, template: str, visitor: Visitor, *, status: int = 200, **context: Any) -> HTMLResponse:
        html = self._templates.get_template(template).render(
            visitor=visitor, csrf=self._access.csrf_token(visitor), **context
        )
        return HTMLResponse(html, status, headers={"Cache-Control": "no-store"})

    def _guarded(self, handle: _Handler) -> _Handler:
        async def guarded(request: Request) -> Response:
            try:
                return await handle(request)
            except RefusalError as error:
                refusal = error
            except InvalidMessageError as error:
                refusal = invalid(error)
            except Exception:
                _log.exception("a request of the page failed")
                return self._refused(request, 500, "the planner failed at this request; its log says how")
            self._jobs.counters.refused[refusal.code.name] += 1
            self._record(request, refusal)
            status = _STATUSES.get(refusal.code, 503)
            if status == 401 and request.method == "GET" and not wants_json(request):
                return RedirectResponse("/login", 303)
            return self._refused(request, status, refusal.reason, owner=refusal.owner)

        return guarded

    def _record(self, request: Request, refusal: RefusalError) -> None:
        """Record refused changes, and requests that were refused for want of rights; no visitor without a login."""
        is_change = request.method == "POST"
        if refusal.code is grpc.StatusCode.UNAUTHENTICATED and not is_change:
            return
        if is_recorded(refusal, is_change=is_change):
            caller = (self._now(request) or self._access.without_token(request)).caller
            job_id = request.path_params.get("job_id", "")
            self._access.record_refusal(caller, action_of(request), job_id, refusal.reason)

    async def _http_error(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return self._refused(request, status, "there is nothing at this address" if status == 404 else "not allowed")

    def _refused(self, request: Request, status: int, sentence: str, *, owner: str = "") -> Response:
        if wants_json(request):
            return JSONResponse({"accepted": False, "sentence": sentence}, status)
        visitor = self._now(request) or self._access.without_token(request)
        page = self._replicas.at(owner).page if owner else ""
        path = request.url.path if request.method != "POST" else request.url.path.rpartition("/")[0]  # the form's page
        elsewhere = f"{page}{path.removeprefix('/')}" if page else ""
        return self._html("refused.html", visitor, status=status, code=status, sentence=sentence, elsewhere=elsewhere)


def _policy_changed(request: Request) -> Response:
    return JSONResponse({"accepted": True}) if wants_json(request) else RedirectResponse("/budgets", 303)
