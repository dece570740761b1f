"""One process per rank: follows the instruction stream, sets clocks ahead of it, measures."""
