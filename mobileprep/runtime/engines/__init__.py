"""Engines: what runs a graph, the interpreter or another library, behind one interface."""
