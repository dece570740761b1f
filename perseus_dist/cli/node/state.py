"""``perseus-dist state``: back up, restore and check what a planner keeps."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perseus_dist.planner.access.rights_backup import Rights
    from perseus_dist.planner.store.backup import Contents

_EPILOG = """\
example:
  perseus-dist state backup /var/backups/planner.sqlite --state-dir /var/lib/perseus-dist
  perseus-dist state restore /var/backups/planner.sqlite --state-dir /var/lib/perseus-dist
  perseus-dist state check --state-dir /var/lib/perseus-dist
"""
_BACKUP_EPILOG = """\
example:
  perseus-dist state backup planner-backup.sqlite

The planner may run meanwhile: it is neither asked nor held up. The file holds jobs, profiles and plans, and FILE.access
beside it named tokens' hashes, roles and the audit record; operator-token and certificates are in neither. They replace
an earlier backup, and no other file. 'doctor' and the planner's metrics tell the age of the newest one. Of a planner
that keeps its jobs in PostgreSQL there is FILE.access alone.
"""
_RESTORE_EPILOG = """\
example:
  perseus-dist state restore planner-backup.sqlite

Refused while a planner uses the folder. FILE.access is restored too, if it is there; tokens that were revoked since
stay revoked, and where the present rights cannot be read a line says that this is not known. What was there is kept
beside it, as planner.sqlite.replaced-TIME and access.sqlite.replaced-TIME.
"""
_CHECK_EPILOG = """\
example:
  perseus-dist state check
  perseus-dist state check planner-backup.sqlite --json

Reads a copy of it whole, with the rights and the audit record beside it. The planner may run meanwhile.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "state",
        help="back up, restore or check a planner's state",
        description="Back up, restore or check the state of a planner.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    backup = _add(commands, "backup", "copy the state into one file, verified", _BACKUP_EPILOG)
    backup.add_argument("file", type=Path, metavar="FILE", help="to write, readable by its owner alone")
    backup.set_defaults(run=run_backup)
    restore = _add(commands, "restore", "put a backup in the place of the state", _RESTORE_EPILOG)
    restore.add_argument("file", type=Path, metavar="FILE", help="a backup")
    restore.set_defaults(run=run_restore)
    check = _add(commands, "check", "read a state or a backup whole, and say what is in it", _CHECK_EPILOG)
    check.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="a backup; default: the state folder's database"
    )
    check.set_defaults(run=run_check)
    for command in (backup, restore, check):
        command.add_argument(
            "--state-dir",
            type=Path,
            metavar="DIR",
            help="the planner's; default: state-dir of [planner] in perseus.toml, else $XDG_STATE_HOME/perseus-dist or "
            "~/.local/state/perseus-dist",
        )
        command.add_argument("--json", action="store_true", help="print one JSON object")


def run_backup(args: argparse.Namespace) -> int:
    """Copy.

    Raises:
        PerseusError: There is no state, or no backup could be written.
    """
    from perseus_dist.planner.access.rights_backup import check_rights_place, prepared_rights_backup
    from perseus_dist.planner.store.backup import prepared_backup
    from perseus_dist.planner.store.state_dir import RIGHTS

    check_rights_place(args.file)
    if _has_rights_alone(_state_dir(args)):
        return _back_up_rights_alone(args)
    with (
        prepared_backup(_state_dir(args), args.file) as (contents, put_jobs),
        prepared_rights_backup(_state_dir(args) / RIGHTS, args.file) as (rights, put_rights),
    ):
        put_jobs()
        put_rights()
    _note(args)
    _tell(contents, args, f"{args.file}: backup of {{}}{_beside(rights)}", rights=str(rights.path) if rights else None)
    return 0


def run_restore(args: argparse.Namespace) -> int:
    """Replace.

    Raises:
        PerseusError: A planner uses the folder, or the backup is of no use.
    """
    from perseus_dist.planner.access.rights_backup import prepared_rights_restore, rights_beside
    from perseus_dist.planner.sqlite_files.replaced_file import is_there
    from perseus_dist.planner.store.backup import prepared_restore, taken_over
    from perseus_dist.planner.store.state_dir import RIGHTS

    if not is_there(args.file) and is_there(rights_beside(args.file)):
        with (
            taken_over(_state_dir(args), rights_beside(args.file)),
            prepared_rights_restore(args.file, _state_dir(args) / RIGHTS) as (rights, put_rights),
        ):
            put_rights()
        _tell_rights(rights, args, f"{_state_dir(args)}: restored no jobs{{}}{_revocations(rights)}")
        return 0
    with (
        taken_over(_state_dir(args), args.file),
        prepared_restore(args.file, _state_dir(args)) as (contents, aside, put_jobs),
        prepared_rights_restore(args.file, _state_dir(args) / RIGHTS) as (rights, put_rights),
    ):
        put_jobs()
        put_rights()
    kept = f"; what was there is kept as {aside}" if aside else ""
    _tell(
        contents,
        args,
        f"{_state_dir(args)}: restored {{}}{_beside(rights)}{_revocations(rights)}{kept}",
        kept=None if aside is None else str(aside),
        rights=None if rights is None else str(rights.path),
        **_kept(rights),
    )
    return 0


def run_check(args: argparse.Namespace) -> int:
    """Read.

    Raises:
        PerseusError: It is missing or damaged.
    """
    from perseus_dist.planner.access.rights_backup import inspect_rights, rights_beside
    from perseus_dist.planner.sqlite_files.replaced_file import is_there
    from perseus_dist.planner.store.backup import inspect
    from perseus_dist.planner.store.state_dir import DATABASE, RIGHTS

    path = args.file or _state_dir(args) / DATABASE
    path_of_rights = rights_beside(path) if args.file else _state_dir(args) / RIGHTS
    if not is_there(path) and is_there(path_of_rights):
        _tell_rights(inspect_rights(path_of_rights), args, f"{path}: no jobs{{}}")
        return 0
    contents = inspect(path)
    rights = inspect_rights(path_of_rights)
    _tell(contents, args, f"{path}: {{}}{_beside(rights)}", rights=str(rights.path) if rights else None)
    return 0


def _has_rights_alone(state_dir: Path) -> bool:
    """Whether its planner keeps its jobs elsewhere, as in PostgreSQL."""
    from perseus_dist.planner.sqlite_files.replaced_file import is_there
    from perseus_dist.planner.store.state_dir import DATABASE, RIGHTS

    return is_there(state_dir / RIGHTS) and not is_there(state_dir / DATABASE)


def _back_up_rights_alone(args: argparse.Namespace) -> int:
    from perseus_dist.errors import OutputError
    from perseus_dist.planner.access.rights_backup import prepared_rights_backup
    from perseus_dist.planner.store.state_dir import RIGHTS

    if os.path.lexists(args.file):
        raise OutputError(
            f"{args.file}: is there, and {_state_dir(args)} has rights alone and no jobs to replace it; name another "
            "file, beside which FILE.access is written"
        )
    with prepared_rights_backup(_state_dir(args) / RIGHTS, args.file) as (rights, put):
        put()
    _note(args)
    _tell_rights(rights, args, f"{args.file}: backup of no jobs, which are not in {_state_dir(args)}{{}}")
    return 0


def _note(args: argparse.Namespace) -> None:
    """Let planner and ``doctor`` know of the backup, which stands without that."""
    from perseus_dist.errors import OutputError
    from perseus_dist.planner.store.last_backup import note_backup

    try:
        note_backup(_state_dir(args), args.file)
    except OutputError as error:
        print(f"perseus-dist: {error}; metrics and 'doctor' do not know of this backup", file=sys.stderr)


def _beside(rights: "Rights | None") -> str:
    """The part of a line that says which rights were read."""
    if rights is None:
        return ""
    tokens = "1 named token" if rights.num_tokens == 1 else f"{rights.num_tokens} named tokens"
    records = "1 audit record" if rights.num_records == 1 else f"{rights.num_records} audit records"
    return f"; {tokens} and {records}, verified: {rights.path}"


def _kept(rights: "Rights | None") -> dict[str, int]:
    return {
        "kept_revoked": rights.num_kept_revoked if rights else 0,
        "lacks_revocations": rights is not None and rights.lacks_revocations,
    }


def _revocations(rights: "Rights | None") -> str:
    """The part of a line that says which revocations a restore keeps."""
    if rights is None:
        return ""
    if rights.lacks_revocations:
        return "; revocations since the backup are not known: see 'perseus-dist token list', and revoke anew"
    if not rights.num_kept_revoked:
        return ""
    stay = "1 stays" if rights.num_kept_revoked == 1 else f"{rights.num_kept_revoked} stay"
    return f"; of tokens revoked since the backup, {stay} revoked"


def _add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str, epilog: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _state_dir(args: argparse.Namespace) -> Path:
    from perseus_dist.rpc.state_folder import default_state_dir

    state_dir: Path | None = args.state_dir
    return state_dir or default_state_dir()


def _tell(contents: "Contents", args: argparse.Namespace, text: str, **more: str | int | None) -> None:
    num_facts = sum(map(len, contents.jobs.values()))
    of_jobs = {job: len(facts) for job, facts in sorted(contents.jobs.items()) if job}  # others are the planner's own
    if args.json:
        told = {
            "schema_version": contents.schema_version,
            "written_by": contents.written_by,
            "bytes": contents.num_bytes,
            "jobs": of_jobs,
            **more,
        }
        print(json.dumps(told))
        return
    jobs = "1 job" if len(of_jobs) == 1 else f"{len(of_jobs)} jobs"
    version = f"schema version {contents.schema_version}"
    if contents.written_by:
        version += f" of perseus-dist {contents.written_by}"
    print(text.replace("{}", f"{jobs}, {num_facts} facts, {contents.num_bytes / 1e6:.1f} MB, {version}, verified"))


def _tell_rights(rights: "Rights | None", args: argparse.Namespace, text: str) -> None:
    """Print what is said of a backup or a state without jobs."""
    if args.json:
        print(json.dumps({"jobs": {}, "rights": str(rights.path) if rights else None, **_kept(rights)}))
    else:
        print(text.replace("{}", _beside(rights)))
