"""The process that runs llama.cpp, and the parent side that starts it and talks to it."""
