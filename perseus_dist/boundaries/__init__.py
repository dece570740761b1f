"""Instruction boundaries on their way from the trainer to its agent, through shared memory."""
