"""A trainer that costs little: boundaries by the clock on the wall, and no GPU work.

python light_trainer.py < RANK_SPEC_AS_JSON
"""

import itertools
import json
import sys
import time

from perseus_dist.hooks import RankSpec, attach

_INSTRUCTION_S = 0.02


def main() -> None:
    """Train until killed."""
    spec = RankSpec(**json.loads(sys.stdin.read()))
    hook = attach(spec)
    for iteration in itertools.count():
        hook.iteration_begin(iteration)
        for token in spec.schedule.split():
            hook.begin(token[1], 0, int(token[2:]))
            time.sleep(_INSTRUCTION_S)
            hook.end(token[1], 0, int(token[2:]))
        hook.iteration_end(iteration)


if __name__ == "__main__":
    main()
