"""Sphinx: the site in build/docs, made by ./launch/docs."""

from importlib.metadata import version as installed

project = "perseus-dist"
author = "the perseus-dist maintainers"
copyright = author  # noqa: A001
version = release = installed("perseus-dist")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["tools"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_numpy_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "perseus-dist"
html_copy_source = False
