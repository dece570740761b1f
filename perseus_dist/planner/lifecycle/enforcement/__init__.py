"""Which plan each pipeline follows, from which iteration on, and what a broken promise leads to."""
