"""The Inglenook engine: everything but the window. Importing it is cheap and loads neither Qt nor llama.cpp."""

__version__ = "0.1.0"
