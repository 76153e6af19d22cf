"""Journal -> one format per module. Needs no model: labels can be exported again and again."""
