"""Facts that outlive the planner process. A job is rebuilt from its own, in the order in which they were stored.

A fact replaces the earlier one with the same ``key``; those with different keys are kept side by side.
"""
