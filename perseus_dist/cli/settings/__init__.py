"""Settings of planner, clockd and operators' commands: files and the environment, as defaults of its parser."""
