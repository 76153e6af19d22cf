"""The waist: an append-only file of records, from which every output is made.

`journal.jsonl` is UTF-8, one JSON object per line, keys sorted; the first line is a header. The newest record of
a (key, frame) counts. A torn last line (the process was killed while writing it) is cut off on opening; damage
anywhere else is an error with its line number. Only places of records are held in memory.
"""

from labeler.journal.reading import NAME, SCHEMA, Header, JournalReader, Place, Places
from labeler.journal.writing import Journal

__all__ = ["NAME", "SCHEMA", "Header", "Journal", "JournalReader", "Place", "Places"]
