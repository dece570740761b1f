"""Commands that run on simulated GPUs."""
