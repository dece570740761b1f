"""Common parts of frameworks' adapters. Standard library only; a framework is imported where it is used."""
