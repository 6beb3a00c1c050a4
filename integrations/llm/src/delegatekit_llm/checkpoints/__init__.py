"""Folders whose weights are integers already: a module for each way in which they are packed."""
