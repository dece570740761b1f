"""``python -m perseus_dist`` is ``perseus-dist``."""

from perseus_dist.cli import main

raise SystemExit(main())
