"""Write the tables of metrics into docs/metrics.md, from the catalogues of planner and node.

    python docs/tools/metrics_table.py [--check]

With ``--check`` nothing is written, and the exit code is 1 where the page is not what the catalogues give.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from perseus_dist.device import node_metrics
from perseus_dist.planner.metrics import catalogue

PAGE = Path(__file__).resolve().parents[1] / "metrics.md"
_TABLE = re.compile(r"(<!-- metrics: (\w+) -->\n).*?(<!-- end of metrics -->)", re.DOTALL)


def row(name: str, kind: str, labels: Sequence[str], text: str) -> str:
    """One metric."""
    return f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |"


def tables() -> dict[str, str]:
    """Table by the name that the page has for it."""
    families = [(family, row(family.shown_name, family.kind, family.labels, family.help)) for family in catalogue.ALL]
    rows = {
        "planner": [shown for family, shown in families if catalogue.JOB not in family.labels],
        "job": [shown for family, shown in families if catalogue.JOB in family.labels],
        "node": [row(family.name, "gauge", family.labels, family.help) for family in node_metrics.ALL],
    }
    head = "| metric | type | labels | |\n| --- | --- | --- | --- |\n"
    return {name: "\n" + head + "\n".join(lines) + "\n\n" for name, lines in rows.items()}


def main() -> int:
    """Fill the tables in, or check that they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page would change")
    args = parser.parse_args()
    made, text = tables(), PAGE.read_text()
    filled = _TABLE.sub(lambda found: found[1] + made[found[2]] + found[3], text)
    if not args.check:
        PAGE.write_text(filled)
    elif filled != text:
        print(f"{PAGE}: not what the catalogues of metrics give; run {Path(__file__).name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
