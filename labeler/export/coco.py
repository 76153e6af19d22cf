"""COCO instances, streamed from the journal: memory does not grow with the number of annotations.

Ids start at 1 and follow the sorted keys, so the same journal gives the same bytes. A picture without objects
stays; an empty mask is no annotation. For clips there is one image per frame, and annotations only where the
object is visible.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

from labeler.errors import UsageError
from labeler.journal import JournalReader
from labeler.types import WHOLE_CLIP, frame_name


def write(reader: JournalReader, stream: IO[str], *, categories: Mapping[str, int] | None = None) -> None:
    """Write the document to `stream`. `categories`: ids by name; default from 1, in the order of the sorted names.

    Raises UsageError if a journal's category is not among `categories`.
    """
    header = reader.header
    names = sorted(_category_names(reader))
    ids = categories if categories is not None else {name: number for number, name in enumerate(names, start=1)}
    if missing := sorted(set(names) - ids.keys()):
        raise UsageError(f"categories: {', '.join(missing)}: used by the labels but not in the list of categories")
    clips = header.kind == "videos"
    info = {
        "description": "labelled by sam2label",
        "version": header.program,
        "bundle": header.bundle,
        "options": header.options,
    }
    stream.write('{\n"info": ' + _json(info) + ",\n")
    stream.write('"licenses": [],\n')
    _write_list(
        stream, "categories", ({"id": number, "name": name, "supercategory": ""} for name, number in ids.items())
    )
    if clips:
        _write_list(stream, "videos", _videos(reader))
    _write_list(stream, "images", _images(reader))
    _write_list(stream, "annotations", _annotations(reader, ids, clips), last=True)
    stream.write("}\n")


def _category_names(reader: JournalReader) -> set[str]:
    return {annotation["category"] for record in _done(reader) for annotation in record["annotations"]}


def _done(reader: JournalReader) -> Iterator[dict[str, Any]]:
    """Pictures, or frames of clips."""
    return (record for record in reader.records(status="done") if record["frame"] != WHOLE_CLIP)


def _videos(reader: JournalReader) -> Iterator[dict[str, Any]]:
    seen: dict[str, dict[str, Any]] = {}
    for record in _done(reader):
        if record["key"] not in seen:
            seen[record["key"]] = {"id": len(seen) + 1, "name": record["key"]} | _size(record)
    return iter(seen.values())


def _images(reader: JournalReader) -> Iterator[dict[str, Any]]:
    clips = reader.header.kind == "videos"
    videos: dict[str, int] = {}
    for number, record in enumerate(_done(reader), start=1):
        image = {"id": number, "file_name": record["key"]} | _size(record)
        if clips:
            image["file_name"] = frame_name(record["key"], record["frame"])
            image["video_id"] = videos.setdefault(record["key"], len(videos) + 1)
            image["frame_index"] = record["frame"]
            image["time_s"] = record["time_s"]
        else:
            image["exif_orientation"] = record["exif_orientation"]
        yield image


def _annotations(reader: JournalReader, ids: Mapping[str, int], clips: bool) -> Iterator[dict[str, Any]]:
    number = 0
    for image_id, record in enumerate(_done(reader), start=1):
        for annotation in record["annotations"]:
            if annotation["area"] == 0 or (clips and not annotation["visible"]):
                continue
            number += 1
            yield _annotation(annotation, number, image_id, ids[annotation["category"]], clips)


def _annotation(
    annotation: dict[str, Any], number: int, image_id: int, category_id: int, clips: bool
) -> dict[str, Any]:
    result = {
        "id": number,
        "image_id": image_id,
        "category_id": category_id,
        "segmentation": annotation["rle"],
        "area": annotation["area"],
        "bbox": annotation["bbox"],
        "iscrowd": 0,
        "attributes": {
            name: annotation[name]
            for name in (
                "object_id",
                "predicted_iou",
                "stability",
                "object_score",
                "visible",
                "candidate",
                "chosen",
                "selection",
                "points",
                "box",
            )
        },
    }
    if annotation["predicted_iou"] is not None:
        result["score"] = annotation["predicted_iou"]
    if clips:
        result["track_id"] = annotation["object_id"]
    return result


def _size(record: Mapping[str, Any]) -> dict[str, int]:
    return {"width": record["width"], "height": record["height"]}


def _write_list(stream: IO[str], name: str, entries: Iterable[dict[str, Any]], *, last: bool = False) -> None:
    stream.write(f'"{name}": [')
    separator = "\n"
    for entry in entries:
        stream.write(separator + _json(entry))
        separator = ",\n"
    stream.write("\n]" + ("\n" if last else ",\n"))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
