"""The agent without its input and output: events with their times in, lists of actions out."""
