"""Time and energy profiles, and the cost curves that planning makes of them."""
