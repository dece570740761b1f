"""Planning that the planners and workers of a database share: the queue, who takes from it, and what is kept."""
