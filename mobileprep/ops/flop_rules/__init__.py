"""Flop rules, a module for each kind of op."""
