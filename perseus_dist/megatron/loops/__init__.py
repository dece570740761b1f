"""Loops that call megatron-core's schedules: Megatron-LM's, Megatron-Bridge's; where they write, how they end."""
