"""Commands about the command line itself: its settings and its completion."""
