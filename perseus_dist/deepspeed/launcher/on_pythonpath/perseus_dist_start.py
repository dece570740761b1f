"""What runs at the start of an enabled environment's every Python process; its text is the .pth file's one line."""

import sys


class PerseusStart:
    """Waits until DeepSpeed is imported, which most processes never do, and imports nothing before."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """One of Python's finders of modules, which finds none."""
        if name in ("deepspeed.launcher", "deepspeed.runtime") and PerseusStart in sys.meta_path:
            sys.meta_path.remove(PerseusStart)
            try:
                from perseus_dist.deepspeed.activation import start

                start()
            except Exception as error:
                sys.stderr.write(f"DeepSpeed runs without Perseus: {error}\n")


sys.meta_path.insert(0, PerseusStart)
