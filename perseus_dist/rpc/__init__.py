"""Generated code and the codec between ``messages`` and the wire."""
