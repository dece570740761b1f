"""The folder that a run leaves behind: its files, who writes them, and who reads them back."""
