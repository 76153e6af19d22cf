"""`python -m labeler` is the command `sam2label`."""

from labeler.cli import main

if __name__ == "__main__":
    main()
