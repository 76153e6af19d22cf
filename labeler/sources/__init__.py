"""Reads what a person points at: finds pictures and clips, opens them, and hands out upright RGB.

scan       which files and folders below a root are inputs
formats    the file names that count as pictures and clips
pictures   one picture: its size from the header, its pixels
rgb        any pixel type to 8-bit RGB, by stated rules
"""
