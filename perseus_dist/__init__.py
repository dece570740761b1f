"""Perseus for Megatron-LM and DeepSpeed: the energy-optimal clock for every computation of a pipeline."""

from importlib.metadata import version

__version__ = version("perseus-dist")
