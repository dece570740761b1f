"""What must hold of every played scenario; each module is one invariant, a pure function of the recorded run."""
