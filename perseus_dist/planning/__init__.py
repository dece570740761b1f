"""Plans from a schedule and a profile: pure functions of their input. Import from the modules."""
