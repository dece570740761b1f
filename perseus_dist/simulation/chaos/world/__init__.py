"""The world that scenarios are played in, and what of it is compared with the truth."""
