"""Which file names count as pictures and which as clips.

The tables are written out rather than asked of the installed Pillow, so that the same folder gives the same items
on every machine. A test compares them with Pillow's own registry.
"""

from __future__ import annotations

from pathlib import PurePath

PICTURE_FORMATS: dict[str, tuple[str, ...]] = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png", ".apng"),
    "WEBP": (".webp",),
    "TIFF": (".tif", ".tiff"),
    "GIF": (".gif",),
    "BMP": (".bmp",),
    "AVIF": (".avif", ".avifs"),
    "PPM": (".pbm", ".pgm", ".ppm", ".pnm", ".pfm"),
    "JPEG2000": (".jp2", ".j2k", ".jpc", ".jpf", ".jpx", ".j2c"),
    "MPO": (".mpo",),
    "QOI": (".qoi",),
    "PSD": (".psd",),
    "ICO": (".ico",),
    "CUR": (".cur",),
    "ICNS": (".icns",),
    "DDS": (".dds",),
    "BLP": (".blp",),
    "FTEX": (".ftc", ".ftu"),
    "DIB": (".dib",),
    "SGI": (".bw", ".rgb", ".rgba", ".sgi"),
    "SUN": (".ras",),
    "FITS": (".fit", ".fits"),
    "FLI": (".fli", ".flc"),
    "GBR": (".gbr",),
    "DCX": (".dcx",),
    "PCX": (".pcx",),
    "MSP": (".msp",),
    "PIXAR": (".pxr",),
    "XBM": (".xbm",),
    "XPM": (".xpm",),
    "IM": (".im",),
    "IPTC": (".iim",),
    "PCD": (".pcd",),
    "TGA": (".tga", ".icb", ".vda", ".vst"),
}
"""Pillow formats that decode to pixels, in the order in which a file's content is tried (TGA has no signature: last).

Left out: EPS, PS and PDF (they start Ghostscript), WMF and EMF (drawn by Windows only), and the formats that Pillow
recognises but cannot decode (BUFR, GRIB, HDF5, MPEG)."""

VIDEO_FORMATS: dict[str, tuple[str, ...]] = {
    "MPEG-4": (".mp4", ".m4v", ".mov", ".qt", ".3gp", ".3g2", ".f4v"),
    "Matroska": (".mkv", ".webm"),
    "AVI": (".avi", ".divx"),
    "MPEG": (".mpg", ".mpeg", ".m1v", ".m2v", ".mts", ".m2ts", ".ts", ".vob"),
    "Windows Media": (".wmv", ".asf"),
    "Flash": (".flv",),
    "Ogg": (".ogv", ".ogm"),
    "RealMedia": (".rm", ".rmvb"),
    "other containers": (".mxf", ".nut", ".dv", ".y4m", ".ivf"),
    "bare streams": (".h264", ".264", ".h265", ".265", ".hevc", ".mjpeg", ".mjpg"),
}
"""Video files by container. The name only makes a file an input; PyAV looks at the content."""

ANIMATED_EXTENSIONS = frozenset({".gif", ".webp", ".png", ".apng", ".avif", ".avifs"})
"""Pictures that may hold an animation; only their content tells."""


def _all(formats: dict[str, tuple[str, ...]]) -> frozenset[str]:
    return frozenset(extension for extensions in formats.values() for extension in extensions)


PICTURE_EXTENSIONS = _all(PICTURE_FORMATS)
VIDEO_EXTENSIONS = _all(VIDEO_FORMATS)


def is_picture_name(name: str) -> bool:
    """True where the extension is one of `PICTURE_EXTENSIONS`, in any case."""
    return PurePath(name).suffix.lower() in PICTURE_EXTENSIONS


def is_video_name(name: str) -> bool:
    """True where the extension is one of `VIDEO_EXTENSIONS`, in any case."""
    return PurePath(name).suffix.lower() in VIDEO_EXTENSIONS
