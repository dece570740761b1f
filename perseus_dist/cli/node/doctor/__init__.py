"""``perseus-dist doctor``: checks of a node and of what it is to work with."""
