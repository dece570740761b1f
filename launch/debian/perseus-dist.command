#!/usr/lib/perseus-dist/bin/python3 -P
import sys

from perseus_dist.cli import main

sys.exit(main())
