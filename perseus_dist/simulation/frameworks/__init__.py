"""Training scripts run by their frameworks' launchers, on simulated GPUs or real ones."""
