"""Pages of replicas: where each leads to."""

import pytest

from perseus_dist.planner.web.replicas import page_at


@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("planner-1.example:50151", "https://planner-1.example:50152/"),
        ("[2001:db8::1]:50151", "https://[2001:db8::1]:50152/"),
        ("planner-0.example:60151", ""),  # on this host its page has another port, which is not known
    ],
)
def test_the_page_of_another_host_has_this_ones_port(address: str, page: str) -> None:
    assert page_at(address, "planner-0.example:50151", scheme="https", port=50152) == page
