"""From evidence to verdicts: raised, followed, over."""
