"""Page of the planner for people: the fleet, one job, its target; imported where ``--web`` is given."""
