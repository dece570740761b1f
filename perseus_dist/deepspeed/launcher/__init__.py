"""``deepspeed --perseus``: options for DeepSpeed's launcher, and how they reach the ranks."""
