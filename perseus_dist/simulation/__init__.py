"""The closed loop on simulated GPUs: stand-in trainers, agents and a planner."""
