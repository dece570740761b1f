"""Stand-in trainers, which launch a schedule's work on simulated GPUs."""
