"""What the adapters of training frameworks share. Standard library only; a framework is imported where it is used."""
