"""Which rank is slower than its likes, by how much and why: pure functions of history and now."""
