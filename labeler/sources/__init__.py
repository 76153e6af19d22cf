"""Reads what a person points at: finds pictures and clips, opens them, and hands out upright RGB.

scan         which files and folders below a root are inputs, in natural order
formats      the file names that count as pictures and clips
digests      what identifies an input's content
opening      files and picture headers; every failure as a SourceError of one line
orientation  which way up a picture says it is
rgb          any pixel type to 8-bit RGB, by stated rules
pictures     one picture: its size from the header, its pixels
arrays       pictures that are arrays already
clips        a clip of any kind: its index, its frames in any order
video        clips in video files
libav        one decoding pass over a video file
cut          whether a video file's own structure says that it was longer
animation    clips in animated pictures
folder       clips in folders of frames
span         which frames are meant by frames, seconds and strides
"""
