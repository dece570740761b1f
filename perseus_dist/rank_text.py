"""Sentences of several ranks: one sentence for all ranks that say the same."""

from collections.abc import Iterable, Mapping


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks as people write them: ``rank 3``, ``ranks 0-3, 7``.

    Args:
        ranks: At least one; in any order.
    """
    runs: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if runs and runs[-1][1] == rank - 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    numbers = ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)
    return f"rank{'s' if len(runs) > 1 or runs[0][0] < runs[0][1] else ''} {numbers}"


def told_once(sentences: Mapping[int, str]) -> list[str]:
    """A line for each different sentence, with the ranks that say it; empty sentences are left out.

    Args:
        sentences: By rank.

    Returns:
        In the order of each sentence's lowest rank.
    """
    ranks_of: dict[str, list[int]] = {}
    for rank in sorted(sentences):
        if sentences[rank]:
            ranks_of.setdefault(sentences[rank], []).append(rank)
    return [f"{ranks_text(ranks)}: {sentence}" for sentence, ranks in ranks_of.items()]
