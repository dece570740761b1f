"""Invariants of every played scenario; each module is one, a pure function of the recorded run."""
