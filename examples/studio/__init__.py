"""Deterministic pictures and clips with true masks: see render.py beside this folder."""
