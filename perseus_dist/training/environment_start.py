"""Start of every Python process in an enabled environment: a .pth file holds this text and one call."""

import sys

FRAMEWORKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "deepspeed": ("DeepSpeed", ("deepspeed.launcher", "deepspeed.runtime")),
    "megatron": ("Megatron", ("megatron.training", "megatron.core.pipeline_parallel")),
    "pipelining": ("torch", ("torch.optim",)),  # also for jobs without a pipeline, which are warned
}
"""By the adapter's name: what people call it, and the modules without which nothing trains with it."""


class PerseusStart:
    """Waits until a framework is imported, which most processes never do, and imports nothing before."""

    def __init__(self, adapter: str) -> None:
        self.perseus_adapter = adapter
        self._name, self._modules = FRAMEWORKS[adapter]

    def find_spec(self, name: str, *_: object) -> None:
        """One of Python's finders of modules, which finds none."""
        if name in self._modules:
            self._modules = ()  # and stays in the list, which is being gone through: the next finder would be left out
            try:
                activation = f"perseus_dist.{self.perseus_adapter}.activation"
                __import__(activation)
                sys.modules[activation].start()
            except Exception as error:
                if not _is_uninstalled(error):
                    _say(f"{self._name} runs without Perseus: {error}\n")


def _is_uninstalled(error: Exception) -> bool:
    """Whether the package, or its folder, is gone, and this text was left behind."""
    if isinstance(error, ModuleNotFoundError):
        return "perseus_dist" in str(error.name)
    return isinstance(error, FileNotFoundError) and "perseus_dist" in str(error.filename)


def _say(line: str) -> None:
    try:
        sys.stderr.write(line)
    except Exception:  # it is closed, or its disk is full: an import is not to fail for that
        return


def wait_for(adapter: str) -> None:
    """Start an adapter as soon as its framework is imported.

    Again: nothing, as in virtual environments, whose .pth files Python 3.11 reads twice.
    """
    if not any(getattr(finder, "perseus_adapter", None) == adapter for finder in sys.meta_path):
        sys.meta_path.insert(0, PerseusStart(adapter))
