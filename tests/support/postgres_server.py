"""A PostgreSQL server of Debian's package for tests: in a folder and on sockets of its own, gone with the tests.

PostgreSQL refuses to run as root; there, it runs as the user that Debian's package makes for it, or as nobody.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

PORT = 5432
POOLER_PORT = 6432
CAREFUL = "careful"
"""Role whose members show a password; all other users are trusted, but for one named refused."""
_SETTINGS = """
listen_addresses = ''
port = {port}
unix_socket_directories = '{folder}'
fsync = {fsync}
log_min_messages = warning
max_connections = 40
shared_buffers = 16MB
autovacuum = off
"""
_POOLER = """
[databases]
* = host={folder} port={port}
[pgbouncer]
listen_addr =
listen_port = {pooler_port}
unix_socket_dir = {folder}
auth_type = trust
auth_file = {folder}/users.txt
pool_mode = transaction
default_pool_size = 4
server_login_retry = 1
logfile = {folder}/pgbouncer.log
pidfile = {folder}/pgbouncer.pid
"""


def find_program(name: str) -> Path | None:
    """One of PostgreSQL's programs, which Debian keeps off the PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[4]))
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    return versions[-1] if versions else Path(found) if found else None


def why_not() -> str:
    """Why no server can be started here; empty if it can."""
    missing = [name for name in ("initdb", "postgres") if find_program(name) is None]
    return f"no {' and no '.join(missing)}: install Debian's postgresql" if missing else ""


class PostgresServer:
    """A cluster, and the server on it.

    Args:
        folder: Of the cluster and of the sockets; made, and owned by the user that it runs as.
        fsync: Whether commits are flushed, as they are where a server is not for tests.
    """

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        self.folder = folder
        self._environment = dict(os.environ)  # of the session, for a later start by one test, too
        self._account = _account()
        self._process: subprocess.Popen[bytes] | None = None
        self._pooler: subprocess.Popen[bytes] | None = None
        if self._account is not None:
            os.chown(folder, self._account.pw_uid, self._account.pw_gid)
        self._cluster = folder / "cluster"
        initdb, sync = find_program("initdb"), () if fsync else ("--no-sync",)
        command = [str(initdb), "--pgdata", str(self._cluster), "--username", "postgres", "--auth", "trust"]
        self._run([*command, "--encoding", "UTF8", "--locale", "C", "--no-instructions", *sync])
        access = self._cluster / "pg_hba.conf"
        access.write_text("local all +careful scram-sha-256\nlocal all refused reject\n" + access.read_text())
        settings = _SETTINGS.format(folder=folder, port=PORT, fsync="on" if fsync else "off")
        with (self._cluster / "postgresql.conf").open("a") as file:
            file.write(settings)

    def start(self, options: Mapping[str, str] = {}) -> None:
        """Serve, with settings beside those of the cluster; answers when this returns."""
        words = [word for key, value in options.items() for word in ("-c", f"{key}={value}")]
        self._process = self._spawn([str(find_program("postgres")), "-D", str(self._cluster), *words], "postgres.log")
        wait_until(self._answers)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server: fast, or by ``SIGQUIT`` as a crash does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def pause(self) -> None:
        """Stop all of the server's processes where they are: connections stay, and no answer comes."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in (pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(each, number)

    def start_pooler(self) -> None:
        """Serve by pgbouncer, too, in transaction mode."""
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(_POOLER.format(folder=self.folder, port=PORT, pooler_port=POOLER_PORT))
        (self.folder / "users.txt").write_text('"postgres" ""\n')
        self._pooler = self._spawn([str(find_program("pgbouncer")), str(settings)], "pgbouncer.out")
        wait_until((self.folder / f".s.PGSQL.{POOLER_PORT}").exists)

    def close(self) -> None:
        """End everything."""
        if self._pooler is not None:
            self._pooler.terminate()
            self._pooler.wait(30)
        self.stop(signal.SIGQUIT)

    def url(self, database: str, *, user: str = "postgres", pooled: bool = False, more: str = "") -> str:
        """Of a database."""
        port = POOLER_PORT if pooled else PORT
        return f"postgresql://{user}@/{database}?host={self.folder}&port={port}{more}"

    def fresh_database(self) -> str:
        """An empty one's name; the same one each time, since making one takes long."""
        if not self.execute("SELECT 1 FROM pg_database WHERE datname = 'fresh'"):
            self.execute("CREATE DATABASE fresh")
        self.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'fresh'")
        self.execute("DROP SCHEMA IF EXISTS perseus_dist CASCADE", "fresh")
        return "fresh"

    def execute(self, statement: str, database: str = "postgres", parameters: Any = None) -> list[tuple[Any, ...]]:
        """Run a statement as the superuser, past any pooler; its rows."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def _answers(self) -> bool:
        import psycopg

        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "postgres.log").read_text()
        try:
            psycopg.connect(self.url("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def _spawn(self, command: list[str], log: str) -> "subprocess.Popen[bytes]":
        with (self.folder / log).open("ab") as output:
            options = {"cwd": self.folder, "env": self._environment, **self._identity()}
            return subprocess.Popen(command, stdout=output, stderr=output, **options)

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.folder, **self._identity())
        assert done.returncode == 0, done.stderr

    def _identity(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": ()}


def _account() -> pwd.struct_passwd | None:
    """Root's stand-in."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("postgres")
    return pwd.getpwnam("nobody")


@contextmanager
def running_server(*, fsync: bool = False) -> Iterator[PostgresServer]:
    """A server that has begun, in a folder that its user can reach."""
    with tempfile.TemporaryDirectory(prefix="perseus-pg-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder), fsync=fsync)
        try:
            server.start()
            yield server
        finally:
            server.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests of this process."""
    pytest.importorskip("psycopg", reason="no psycopg: pip install 'perseus-dist[postgres]'")
    if reason := why_not():
        pytest.skip(reason)
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def pooled(postgres: PostgresServer) -> PostgresServer:
    """The same, behind pgbouncer."""
    if find_program("pgbouncer") is None:
        pytest.skip("no pgbouncer: install Debian's pgbouncer")
    postgres.start_pooler()
    return postgres
