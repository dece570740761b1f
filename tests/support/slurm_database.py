"""Slurm's accounting on this machine: MariaDB without a network, and the settings of a slurmdbd that writes there."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import wait_until

_PROGRAMS = ("slurmdbd", "sacctmgr", "sacct", "mariadbd", "mariadb-install-db", "my_print_defaults")
_PATH = "/usr/sbin:/usr/bin"
_USER = "nobody"  # the package with the server's programs alone makes no user for it


def refusal() -> str:
    """Why there can be none here; empty if there can."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    return (
        f"{', '.join(missing)} missing: apt-get install slurmdbd mariadb-server-core mariadb-client-core"
        if missing
        else ""
    )


@contextmanager
def mariadb(root: Path) -> Iterator[Path]:
    """Serve a new database below a folder that all may read; yields its socket."""
    folder, data = root / "mariadb", root / "mariadb" / "data"
    folder.mkdir(mode=0o755)
    shutil.chown(folder, _USER)
    made = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", f"--user={_USER}", "--skip-test-db"]
    subprocess.run([*made, "--auth-root-authentication-method=normal"], capture_output=True, check=True)
    socket = folder / "s"
    command = ["/usr/sbin/mariadbd", "--no-defaults", f"--datadir={data}", f"--user={_USER}", "--skip-networking"]
    with (folder / "log").open("wb") as log:
        served = subprocess.Popen([*command, f"--socket={socket}", f"--pid-file={folder}/pid"], stderr=log)
        with served:
            try:
                wait_until(lambda: served.poll() is not None or socket.exists())
                assert served.poll() is None, (folder / "log").read_text()
                yield socket
            finally:
                served.terminate()


def write_settings(root: Path, port: int) -> str:
    """Write ``slurmdbd.conf``, beside ``slurm.conf``, and return what that one has to say of it."""
    path = root / "slurmdbd.conf"
    path.write_text(
        f"AuthType=auth/munge\nAuthInfo=socket={root}/munge/s\nDbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={port}\n"
        f"SlurmUser=slurm\nPidFile={root}/state/slurmdbd.pid\nLogFile={root}/state/slurmdbd.log\n"
        "StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=root\nStorageLoc=slurm\n"
    )
    path.chmod(0o600)
    shutil.chown(path, "slurm")
    return (
        "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
        f"AccountingStoragePort={port}\nAccountingStoragePass={root}/munge/s\n"
    )
