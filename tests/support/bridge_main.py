"""Starts ``bridge_gpt``. What Megatron spawns to save a checkpoint imports this file again, and no Bridge with it."""

if __name__ == "__main__":
    from bridge_gpt import main

    main()
