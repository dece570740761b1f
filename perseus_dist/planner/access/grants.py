"""Rights that an administrator gives: to the bearer of a named token, or of a certificate with a certain name."""

from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase


class Role(IntEnum):
    """A set of calls; each role includes those before it."""

    VIEW = 1
    """See jobs, their frontiers and profiles."""
    OPERATE = 2
    """Change targets, report stragglers, start jobs."""
    ADMIN = 3
    """Give and take rights, and read the audit record."""

    @property
    def word(self) -> str:
        """As the command line and the wire spell it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One role, for some jobs or all.

    Attributes:
        name: Of the token, or of the grant to a certificate; unique for ever, since the audit record speaks of it.
        jobs: Patterns of job names with ``*`` and ``?``; empty for all jobs.
        token_sha256: Hexadecimal; empty for a certificate's.
        certificate: Common name, or a subject alternative name, of a client's certificate; empty for a token's.
        created_s, created_by: When, in seconds of Unix time, and the identity that made it.
        expires_s: Unix time from which it counts no more; None for never.
        revoked_s, revoked_by: When it was taken back; None and empty while it counts.
    """

    name: str
    role: Role
    jobs: tuple[str, ...] = ()
    token_sha256: str = ""
    certificate: str = ""
    created_s: float
    created_by: str
    expires_s: float | None = None
    revoked_s: float | None = None
    revoked_by: str = ""

    def why_not(self, now_s: float) -> str:
        """Why it counts no more at a Unix time; empty while it counts."""
        if self.revoked_s is not None:
            return "was revoked"
        return "has expired" if self.expires_s is not None and now_s >= self.expires_s else ""

    def covers(self, job_id: str) -> bool:
        """Whether it speaks of a job."""
        return not self.jobs or any(fnmatchcase(job_id, pattern) for pattern in self.jobs)

    @property
    def text(self) -> str:
        """The grant as the audit record has it."""
        whose = f"certificate {self.certificate}" if self.certificate else "token"
        jobs = ", ".join(self.jobs) or "all jobs"
        return f"{whose} {self.name}: {self.role.word}, {jobs}"
