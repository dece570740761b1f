"""Pages of metrics, read back by Prometheus's own parser."""

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from perseus_dist.planner.metrics.page import Page


def page_samples(page: Page) -> list[Sample]:
    """All series of a page, in its order."""
    text = b"".join(page.text(generate_latest)).decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]
