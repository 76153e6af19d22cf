"""sam2label: pictures, clips and a few seed points become dataset annotations."""

__version__ = "0.1.0"
