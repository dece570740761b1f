"""Calls in which pp_ranks exchange results: what each waits for, framework by framework."""
