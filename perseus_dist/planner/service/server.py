"""The planner's process from start to end: what it listens on, what bounds hostile peers, and how it leaves."""

import asyncio
import errno
import json
import logging
import os
import resource
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from perseus_dist import systemd
from perseus_dist.errors import PerseusError, TransientError
from perseus_dist.planner.access.access import Access
from perseus_dist.planner.access.address import Address, check_bindable
from perseus_dist.planner.access.own_address import own_address
from perseus_dist.planner.access.shared_port import SharedPort, keep_shared_port, load_shared_port
from perseus_dist.planner.access.tls import ServerTls, server_credentials
from perseus_dist.planner.job.job_policy import Policy
from perseus_dist.planner.metrics.collector import PlannerMetrics
from perseus_dist.planner.metrics.endpoint import EndpointConfig, MetricsEndpoint
from perseus_dist.planner.runtime.counters import Counters
from perseus_dist.planner.runtime.garbage import keep_collections_short
from perseus_dist.planner.runtime.jobs import Jobs
from perseus_dist.planner.runtime.outbox import Ending
from perseus_dist.planner.runtime.ownership.ownership import Ownership
from perseus_dist.planner.runtime.shared.database_thread import DatabaseThread
from perseus_dist.planner.runtime.shared.shared_audit import SharedAudit
from perseus_dist.planner.runtime.shared.shared_grants import SharedGrants
from perseus_dist.planner.runtime.signals.signal_files import SignalFiles
from perseus_dist.planner.service.rpc_guard import RpcGuard
from perseus_dist.planner.service.service import service_handler
from perseus_dist.planner.store.database import HeldError
from perseus_dist.planner.store.fact_database import FactDatabase
from perseus_dist.planner.store.job_cache import JobCache
from perseus_dist.planner.store.lease_table import LeaseTable
from perseus_dist.planner.store.shared_rights import AuditTable, GrantTable, SharedRightsError
from perseus_dist.planner.store.state_dir import SIGNAL_ANSWERS
from perseus_dist.planner.store.store import Store
from perseus_dist.planner.worker.planning_worker import PlanningWorkers
from perseus_dist.planner.worker.shared.shared_planning import SharedPlanning
from perseus_dist.planning.output_file import write_output
from perseus_dist.rpc.connection import SERVICE
from perseus_dist.rpc.limits import MAX_AGENT_MESSAGE_BYTES, MAX_PLANNER_MESSAGE_BYTES

if TYPE_CHECKING:
    from perseus_dist.planner.web.server import WebServer

DRAIN_S = 3.0

_MAX_CALLS = 20_000
_IDENTITY_ONLY = 1
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second planner on the same port must fail, not share it
    ("grpc.max_receive_message_length", MAX_AGENT_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_PLANNER_MESSAGE_BYTES),
    ("grpc.max_metadata_size", 8 << 10),
    ("grpc.absolute_max_metadata_size", 16 << 10),
    ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),  # no decompression bombs
    ("grpc.max_concurrent_streams", 128),  # of a connection; agents have one each, and one more at a reconnect
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),  # connections without a call
    # An agent that vanished without a word is noticed within 15 s; agents may ping every 2 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 5_000),  # see rpc.connection
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
    ("grpc.http2.max_ping_strikes", 2),
)

_log = logging.getLogger(__name__)


class ListenError(TransientError):
    """A port that cannot be listened on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """How a planner is to run.

    Attributes:
        bind: Where agents and operators come in.
        database: Where facts are kept; None keeps them in memory.
        operator_token: Opens every job.
        rights: Where named tokens and the audit record are kept; None keeps them in memory.
        needs_token: Whether calls with neither a token nor a certificate that has a role are refused.
        tls: None serves plain text.
        metrics: Where they are served; None for no metrics.
        web: Where the page for people is served; None for no page.
        address_file: Told where the planner listens: JSON with ``address``, ``metrics_address``, ``web_url``, ``pid``
            and, if ``embedded``, ``token``; what other nodes need of a ``share`` is in ``shared``.
        embedded: The planner ends with the process that started it; processes that read ``address_file`` may use it.
            If that process has died, this file and the database have no other owner: the planner removes them.
        parent: Process id of the one that started an ``embedded`` planner. None takes the parent as ``serve`` begins,
            which is another process where the one that started the planner has died by then.
        cache: The job's profile and plans outlive the planner in this file; needs ``job_id``.
        job_id: Of the one job of an embedded planner.
        share: Host where the ranks of a job on several nodes have met: an embedded planner listens on this node's
            address there, too, on this port. None for a job on one node. Needs ``database``.
        policy: Of every job.
        signals: Folder of prices and carbon intensities, in files; None for none.
    """

    bind: Address
    database: Path | None
    operator_token: str
    needs_token: bool
    tls: ServerTls | None = None
    metrics: EndpointConfig | None = None
    web: Address | None = None
    address_file: Path | None = None
    embedded: bool = False
    parent: int | None = None
    cache: Path | None = None
    job_id: str = ""
    share: Address | None = None
    policy: Policy = field(default_factory=Policy)
    rights: Path | None = None
    signals: Path | None = None


async def serve(
    config: ServerConfig,
    facts: FactDatabase | None = None,
    leases: LeaseTable | None = None,
    planning: Callable[[], SharedPlanning] | None = None,
    on_serving: Callable[[dict[str, str]], None] = lambda _: None,
    rights: tuple[AuditTable, GrantTable] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT, or the end of the parent of an embedded planner; then drain.

    Args:
        config: How.
        facts: An open database, which is closed at the end; None opens ``config.database``.
        leases: Of a planner that is one of several replicas on that database; None for one that serves all jobs.
        planning: Makes the planner's share of the planning that all planners and workers of the database do, on the
            event loop; None for a planner that plans alone.
        on_serving: Called once the planner serves all that it was asked for, with ``address``, ``metrics_address`` and
            ``web_url``; what is not served is empty.
        rights: Tables of the database that other planners use too; None where there is none.

    Raises:
        PerseusError: The store, the certificate or a port cannot be used, or another planner has taken over.
    """
    parent = os.getppid() if config.parent is None else config.parent
    if config.embedded and os.getppid() != parent:
        _remove_traces(config)
        return
    asked = _heed_signals()  # before anybody can know the address, and ask for the end of what is there
    _raise_file_limit()
    async with AsyncExitStack() as cleanup:
        cache = None if config.cache is None else JobCache(config.cache, config.job_id)
        if cache is not None:
            cleanup.callback(cache.close)
        store = Store(config.database if facts is None else facts, cache)
        cleanup.callback(store.close)
        worker = PlanningWorkers() if planning is None else planning()
        cleanup.push_async_callback(worker.close)
        state_dir = _state_dir(config)
        signals = SignalFiles(config.signals, None if state_dir is None else state_dir / SIGNAL_ANSWERS)
        jobs = Jobs(store, worker, config.policy, Counters(), signals)
        cleanup.callback(jobs.close)
        if isinstance(worker, SharedPlanning):
            jobs.shared_planning = worker
        if leases is not None:
            await share_jobs(jobs, store, Ownership(leases, jobs))
        access = Access(config.operator_token, config.rights)
        cleanup.callback(access.close)
        guard = RpcGuard(access=access, needs_token=config.needs_token, counters=jobs.counters)
        if rights is not None:
            audit, grants = rights
            of_audit, of_grants = (DatabaseThread(name) for name in ("audit records", "named tokens"))
            cleanup.callback(of_audit.close, audit.close)
            cleanup.callback(of_grants.close, grants.close)
            guard.shared_grants = SharedGrants(access, grants, of_grants)
            with suppress(SharedRightsError):  # what was revoked while this planner was away counts from its first call
                await guard.shared_grants.exchange()
            guard.shared_audit = SharedAudit(access.audit, audit, of_audit)
            cleanup.push_async_callback(guard.shared_audit.leave)
        server = make_server(jobs, guard)
        healthy = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        address = guard.address = Address(config.bind.host, _listen(server, config))
        shared = _share(server, config)
        metrics = _serve_metrics(config, PlannerMetrics(jobs, store, state_dir), cleanup)
        page = None if config.web is None else _make_page(config, config.web, jobs, access, cleanup)
        await server.start()
        for name in (SERVICE, health.OVERALL_HEALTH):
            await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
        if page is not None:
            page.start()
        served = {
            "address": str(address),
            "metrics_address": metrics.address if metrics else "",
            "web_url": "" if page is None else page.url,
        }
        on_serving(served)
        _tell_address(config, served, metrics, shared)
        ticking = asyncio.create_task(jobs.tick())
        collecting = asyncio.create_task(keep_collections_short())
        sending = [asyncio.create_task(one.keep()) for one in (guard.shared_audit, guard.shared_grants) if one]
        keeping = None if jobs.ownership is None else asyncio.create_task(jobs.ownership.keep())
        is_service = not config.embedded  # else systemd would take an embedded planner's end for its job's
        watchdog = None
        if is_service:
            watchdog = asyncio.create_task(systemd.keep_watchdog_quiet(lambda: jobs.num_ticks))
            systemd.notify(f"READY=1\nSTATUS=listening on {address}")
        is_orphan = await _until_asked_to_end(asked, parent if config.embedded else None, store)

        if is_service:
            systemd.notify("STOPPING=1\nSTATUS=draining")
        _log.info("draining: agents are told to come back to whoever listens here next")
        await healthy.enter_graceful_shutdown()
        ticking.cancel()
        collecting.cancel()
        for task in sending:
            task.cancel()
        if keeping is not None and jobs.ownership is not None:
            keeping.cancel()
            jobs.store_savings()
            await jobs.ownership.leave()
        if watchdog is not None:
            watchdog.cancel()
        stopping = asyncio.create_task(server.stop(DRAIN_S))
        await asyncio.sleep(0)  # first no new streams, then an end to those there are
        jobs.end_streams(Ending(reason="the planner restarts; attach again"))
        await stopping
        jobs.store_savings()
    if store.lost.done():
        raise HeldError(store.lost.result())
    if is_orphan:
        _remove_traces(config)


def _state_dir(config: ServerConfig) -> Path | None:
    """The folder that ``state backup`` copies; None for a planner without one."""
    kept = None if config.embedded else config.rights or config.database
    return None if kept is None else kept.parent


def make_server(jobs: Jobs, guard: RpcGuard) -> grpc.aio.Server:
    """The service within its bounds, not listening yet."""
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_MAX_CALLS)
    server.add_generic_rpc_handlers((service_handler(jobs, guard),))
    return server


def _raise_file_limit() -> None:
    """A connection is a file, and the usual soft limit of 1,024 is less than a job's ranks."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _listen(server: grpc.aio.Server, config: ServerConfig) -> int:
    credentials = None if config.tls is None else server_credentials(config.tls)
    address = str(config.bind)
    try:
        check_bindable(config.bind)  # gRPC tells no reason, but writes lines of its own
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        holder = "another planner may hold it: " if getattr(error, "errno", 0) == errno.EADDRINUSE else ""
        raise ListenError(
            f"{address}: cannot be listened on ({reason}); {holder}name another with --bind HOST:PORT"
        ) from error
    except RuntimeError as error:
        raise ListenError(
            f"{address}: cannot be listened on; another planner may hold it: name another with --bind HOST:PORT"
        ) from error


def _share(server: grpc.aio.Server, config: ServerConfig) -> SharedPort | None:
    """Listen for other nodes too; None, with a line in the log, where that cannot be."""
    if config.share is None or config.database is None:
        return None
    try:
        host = own_address(config.share.host.strip("[]"))
        shared = load_shared_port(config.database.parent, host, config.share.port)
        credentials = grpc.ssl_server_credentials([(shared.key.encode(), shared.certificate.encode())])
        shared = replace(shared, port=server.add_secure_port(shared.address, credentials))
        keep_shared_port(config.database.parent, shared)
    except (RuntimeError, ValueError, ImportError, PerseusError) as error:
        _log.warning(
            "other nodes of the job cannot be served (%s): clocks stay as they are; name an address of rank 0's node, "
            "and a port that is free there, with --perseus-share HOST:PORT",
            error,
        )
        return None
    return shared


def _serve_metrics(config: ServerConfig, metrics: PlannerMetrics, cleanup: AsyncExitStack) -> MetricsEndpoint | None:
    if config.metrics is None:
        return None
    endpoint = MetricsEndpoint(config.metrics, metrics.expose)
    # A scrape that waits for the loop would keep the endpoint's thread while the loop waits for that thread.
    cleanup.push_async_callback(asyncio.to_thread, endpoint.close)
    return endpoint


def _make_page(config: ServerConfig, bind: Address, jobs: Jobs, access: Access, cleanup: AsyncExitStack) -> "WebServer":
    from perseus_dist.planner.web.server import WebConfig, WebServer  # planners without a page need none of it

    page = WebServer(WebConfig(bind=bind, access=access, needs_token=config.needs_token, tls=config.tls), jobs)
    cleanup.push_async_callback(page.close)
    return page


def _tell_address(
    config: ServerConfig, served: dict[str, str], endpoint: MetricsEndpoint | None, shared: SharedPort | None
) -> None:
    security = "plain text" if config.tls is None else "mTLS" if config.tls.client_ca else "TLS"
    metrics = f", metrics on {endpoint.url}" if endpoint else ""
    page = f", page at {served['web_url']}" if served["web_url"] else ""
    _log.info("listening on %s (%s)%s%s", served["address"], security, metrics, page)
    if config.address_file is not None:
        told: dict[str, Any] = {**served, "pid": os.getpid()}
        if config.embedded:
            told["token"] = config.operator_token
        if shared is not None:
            told["shared"] = {"address": shared.address, "certificate": shared.certificate}
        write_output(config.address_file, json.dumps(told).encode() + b"\n", mode=0o600)


async def share_jobs(jobs: Jobs, store: Store, ownership: Ownership) -> None:
    """Be one of several replicas: own what has no owner, and from then on what comes."""
    loop = asyncio.get_running_loop()
    jobs.ownership = ownership

    def end(over: "asyncio.Future[str]") -> None:
        if not over.cancelled() and not store.lost.done():
            store.lost.set_result(over.result())

    ownership.is_over.add_done_callback(end)
    store.epochs = ownership.epochs
    store.fenced = lambda job_id, epoch: loop.call_soon_threadsafe(ownership.lose, job_id, epoch)
    await ownership.beat()


def _heed_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set from now on."""
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    return asked


async def _until_asked_to_end(asked: asyncio.Event, parent: int | None, store: Store) -> bool:
    """Until a signal, another planner's taking over, or the end of the parent; whether it was the latter."""
    loop = asyncio.get_running_loop()
    store.lost.add_done_callback(lambda _: loop.call_soon_threadsafe(asked.set))
    if parent is None:
        await asked.wait()
        return False
    with suppress(ProcessLookupError):  # it has ended and is gone
        pidfd = os.pidfd_open(parent)
        try:
            if os.getppid() == parent:
                loop.add_reader(pidfd, asked.set)
                await asked.wait()
                loop.remove_reader(pidfd)
        finally:
            os.close(pidfd)
    return os.getppid() != parent


def _remove_traces(config: ServerConfig) -> None:
    """Remove files written into folders that have no other owner, and the folders if they are empty then."""
    traces = [config.address_file] if config.address_file is not None and _is_ours(config.address_file) else []
    if config.database is not None:
        traces += [config.database.with_name(config.database.name + suffix) for suffix in ("", "-wal", "-shm")]
    folders = dict.fromkeys(path.parent for path in reversed(traces))
    for path in traces:
        with suppress(OSError):
            path.unlink()
    for folder in folders:
        with suppress(OSError):  # somebody else's files are in it
            folder.rmdir()


def _is_ours(address_file: Path) -> bool:
    """Whether no successor, of an agent that was started again, has written its own address there."""
    try:
        return bool(json.loads(address_file.read_text())["pid"] == os.getpid())
    except (OSError, ValueError, KeyError, TypeError):
        return False
