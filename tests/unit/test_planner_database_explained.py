"""What a planner says of an error of its database: which part of the address or the rights to mend."""

import psycopg
import pytest
from psycopg import errors

from perseus_dist.planner.store.postgres.explain import (
    DatabaseAddress,
    asks_for_repetition,
    explain_failure,
    explain_refusal,
    first_line,
    is_lost,
    is_passing,
)

PLACE = DatabaseAddress(host="db", port="5432", user="perseus", database="plans")
PREFIX = "postgresql://perseus@db:5432/plans: "


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("failed to resolve host 'db': Name or service not known", "check the host, db, and that the database runs"),
        ('connection to server at "db", port 5432 failed: Connection refused', "check the port, 5432"),
        ("connection failed: fe_sendauth: no password supplied", "and the password in the file"),
        ('FATAL:  password authentication failed for user "perseus"', "check the user, perseus, and the password"),
        ('FATAL:  role "perseus" does not exist', "check the user, perseus"),
        ('FATAL:  database "plans" does not exist', "or create it: createdb plans"),
        ("FATAL:  no pg_hba.conf entry for host", "give user perseus the right to connect to database plans"),
        ("SSL error: certificate verify failed", "check sslmode and sslrootcert in the URL"),
        ("the moon is full", "check the URL and the database's log"),
    ],
)
def test_a_refused_connection_names_the_part_to_mend(text: str, remedy: str) -> None:
    said = explain_refusal(psycopg.OperationalError(text), PLACE)
    assert said.startswith(f"{PREFIX}cannot be connected to (")
    assert remedy in said


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (errors.InsufficientPrivilege("permission denied"), 'AUTHORIZATION "perseus"'),
        (errors.DiskFull("no space left"), "make room on the database's disk, nothing is lost meanwhile"),
        (errors.ReadOnlySqlTransaction("read-only"), "name the primary"),
        (errors.AdminShutdown("terminating connection"), "check that the database runs, nothing is lost meanwhile"),
        (psycopg.OperationalError("server closed the connection"), "check that the database runs"),
        (errors.UniqueViolation("duplicate key"), "the database's log says more, nothing is lost meanwhile"),
    ],
)
def test_a_failed_statement_names_what_to_do(error: psycopg.Error, remedy: str) -> None:
    said = explain_failure(error, PLACE)
    assert said.startswith(f"{PREFIX}a statement has failed ({error}); ")
    assert remedy in said


def test_an_error_is_lost_passing_or_for_repetition_by_its_state_and_words() -> None:
    assert is_lost(errors.AdminShutdown())
    assert not is_lost(errors.UniqueViolation())
    assert not is_lost(psycopg.ProgrammingError("no state"))
    assert asks_for_repetition(errors.SerializationFailure())
    assert not asks_for_repetition(errors.AdminShutdown())
    assert is_passing(psycopg.OperationalError("the database system is starting up"))
    assert not is_passing(psycopg.OperationalError("password authentication failed"))


def test_an_error_is_one_line_without_what_libpq_puts_before_it() -> None:
    text = '\n connection to server at "db", port 5432 failed: FATAL:  sorry, too many clients already\nDETAIL: more'
    assert first_line(psycopg.OperationalError(text)) == "sorry, too many clients already"
    assert first_line(psycopg.OperationalError("")) == "OperationalError"
