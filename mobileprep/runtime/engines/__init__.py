"""Engines that run a graph, the interpreter or another library, behind one interface."""
