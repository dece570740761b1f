"""Which rank is slower than its peers, by how much and why: pure functions of history and now."""
