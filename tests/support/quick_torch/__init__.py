"""Stands on PYTHONPATH below all tests; a package for mypy alone, which knows one ``sitecustomize`` beside it."""
