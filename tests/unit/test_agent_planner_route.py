"""Which planner a stream goes to: named addresses in turn, and the owner that a replica names."""

from perseus_dist.agent.link.planner_route import PlannerRoute

NAMED = "a:1,b:1,c:1"


def test_named_addresses_are_tried_in_turn() -> None:
    route = PlannerRoute()
    chosen = []
    for _ in range(4):
        chosen.append(route.choose(NAMED))
        route.note_end()
    assert chosen == ["a:1", "b:1", "c:1", "a:1"]
    assert PlannerRoute().choose("a:1") == "a:1"


def test_the_owner_that_a_replica_names_comes_next_and_at_once() -> None:
    route = PlannerRoute()
    assert route.choose(NAMED) == "a:1"
    assert not route.take_redirect()
    route.note_redirect("z:1")
    assert route.take_redirect()
    assert not route.take_redirect()
    assert route.choose(NAMED) == "z:1"
    assert not route.is_named
    route.note_end()
    assert route.choose(NAMED) == "a:1", "the one that knew the owner knows the next one, too"
    assert not route.take_redirect()


def test_an_owner_that_is_dead_and_named_is_not_asked_next() -> None:
    route = PlannerRoute()
    route.choose(NAMED)
    route.note_redirect("a:1")
    assert route.choose(NAMED) == "a:1"
    assert route.is_named
    route.note_end()
    assert route.choose(NAMED) == "b:1"


def test_replicas_that_send_a_rank_round_in_circles_are_not_followed_at_once_for_ever() -> None:
    route = PlannerRoute()
    dues = []
    for number in range(6):
        route.choose(NAMED)
        route.note_redirect(f"z:{number}")
        dues.append(route.take_redirect())
    assert dues == [True, True, True, False, False, False]
    route.note_end()
    route.note_redirect("z:1")
    assert route.take_redirect()


def test_other_addresses_begin_anew() -> None:
    route = PlannerRoute()
    route.choose(NAMED)
    route.note_redirect("z:1")
    assert route.choose("d:1,e:1") == "d:1"
