"""Pictures and reports for people. Needs the optional extra: ``pip install 'perseus-dist[report]'``."""
