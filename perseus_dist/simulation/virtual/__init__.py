"""Whole jobs in virtual time: trainers, agents, network, planner."""
