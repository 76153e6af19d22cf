"""Begin where the first experiment ended: `python -m models.recipe.first_weights img_final.pt final.pt OUT`.

Its encoder is this one. Its decoder lacks the histograms, the proposals, and all points but the first: what they feed
begins at zero, everything else goes over, so the first step already answers clicks as well as that experiment did.
`python -m models.recipe.train --start OUT` goes on from there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from models.recipe.model import Model
from models.recipe.options import ModelOptions

State = dict[str, Tensor]

_ENCODER = {
    "c0": "stem",
    "s2": "at128",
    "s4": "at64",
    "s8": "at32",
    "s16": "at16",
    "at": "at16.3",
    "l16": "from16",
    "t8": "up32",
    "l8": "from32",
    "t4": "up64",
    "l4": "from64",
    "t2": "up128",
    "pa": "pix64",
    "pb": "pix32",
    "pc": "pix16",
}
_ATTENTION = {
    "n1": "norm1",
    "n2": "norm2",
    "q": "query",
    "k": "key",
    "v": "value",
    "o": "out",
    "f1": "wide",
    "f2": "narrow",
    "pos": "position",
}
_RESIDUAL = {"a": "first", "b": "second", "n": "norm"}
_DECODER = {
    "f": "plain",
    "sim": "similar",
    "a": "ground",
    "n": "cue_norm",
    "film": "film",
    "d1": "down64",
    "d2": "down32",
    "d3": "down16",
    "ctx": "context",
    "d4": "bottom",
    "l2": "from16",
    "u2": "up32",
    "l1": "from32",
    "u1": "up64",
    "l0": "from64",
    "n0": "norm128",
    "u0": "up128",
    "m": "at128",
    "z": "to256",
    "mz": "at256",
}
_MEMORY = {
    "m1": "mask1",
    "m2": "mask2",
    "pf": "look",
    "v": "value",
    "occ": "hidden",
    "mtpe": "temporal",
    "tau": "sharpness",
    "tau2": "pointer_sharpness",
}


@torch.no_grad()
def converted(still: State, video: State) -> Model:
    """`still`: weights after its training on pictures, `video`: those after clips, for everything about memory."""
    torch.manual_seed(1)
    model = Model(ModelOptions())
    state: State = {}
    for name, value in still.items():
        part, first, *rest = name.split(".")
        if part == "enc" and first in _ENCODER:
            names = _ATTENTION if first == "at" else _RESIDUAL
            state[".".join(["encoder", _ENCODER[first], *(names.get(each, each) for each in rest)])] = value
        if part == "dec" and first in _DECODER:
            state[".".join(["decoder", _DECODER[first], *(_RESIDUAL.get(each, each) for each in rest)])] = value
    for name, value in video.items():
        part, first, *rest = name.split(".")
        if part == "mem" and first in _MEMORY:
            state[".".join(["memory", _MEMORY[first], *rest])] = value
        if name.startswith("dec.key"):
            state[name.replace("dec", "decoder")] = value
    state |= _fine(still) | _cues(still, video) | _proposals(still, model)
    missing, unexpected = model.load_state_dict(state, strict=False)
    new = ("decoder.codes.", "decoder.iou.", "decoder.score.")
    assert not unexpected, unexpected
    assert all(name.startswith(new) for name in missing), missing
    return model


def _fine(still: State) -> State:
    """hi1 and hi0 give channels up to the plain colours; what the decoder reads from them stays the same."""
    hi1, bias1 = _matrix(still, "enc.h1")
    kept, kept_bias = hi1[:61], bias1[:61]
    state = {"encoder.hi1.weight": _kernel(kept), "encoder.hi1.bias": kept_bias}
    for first, name in (("ht", "fine_similar"), ("hh", "fine_ground")):
        weight, bias = _matrix(still, f"dec.{first}")
        solved = weight @ hi1 @ torch.linalg.pinv(kept)
        state[f"decoder.{name}.weight"] = _kernel(torch.cat([torch.zeros(len(weight), 3), solved], 1))
        state[f"decoder.{name}.bias"] = bias + weight @ bias1 - solved @ kept_bias
    weight, bias = _matrix(still, "dec.g0")
    up, up_bias = _matrix(still, "enc.h0")
    through = weight[:, 16:] @ up
    state["encoder.hi0.weight"], state["encoder.hi0.bias"] = _kernel(torch.eye(16)), torch.zeros(16)
    state["encoder.hi0_up.weight"] = _kernel(torch.cat([through, 0.1 * torch.randn(1, 32)]))
    state["encoder.hi0_up.bias"] = torch.zeros(13)
    pick = torch.cat([torch.eye(12), torch.zeros(12, 1)], 1)
    state["decoder.finest.weight"] = _kernel(torch.cat([torch.zeros(12, 3), weight[:, :16], pick], 1))
    state["decoder.finest.bias"] = bias + weight[:, 16:] @ up_bias
    return state


def _cues(still: State, video: State) -> State:
    """Of its bumps, narrow to wide, the nearest go over; readout weights come from the training on clips."""
    old, seen = still["dec.p.weight"], video["dec.p.weight"]
    similar, fine, (wide, b2, b4, b16) = old[:, :8], old[:, 8:12], old[:, 12:16].unbind(1)
    near, mid = b16 + 0.5 * b4, b2 + 0.5 * b4
    unwanted, other, colours = torch.zeros_like(old[:, :2]), torch.zeros_like(similar), torch.zeros_like(old[:, :2])
    bumps = torch.stack([near, mid, wide], 1)
    return {"decoder.cues.weight": torch.cat([bumps, unwanted, similar, other, fine, colours, seen[:, 16:]], 1)}


def _proposals(still: State, model: Model) -> State:
    fresh = model.state_dict()
    at128 = torch.zeros_like(fresh["decoder.proposed128.weight"])
    at128[:, 8:, 1, 1] = still["dec.st.weight"][:, :, 0, 0]
    zero = ("propose.weight", "propose.bias", "proposed64.weight", "proposed64.bias")
    return {f"decoder.{name}": torch.zeros_like(fresh[f"decoder.{name}"]) for name in zero} | {
        "decoder.proposed128.weight": at128,
        "decoder.proposed128.bias": still["dec.st.bias"],
    }


def _matrix(state: State, name: str) -> tuple[Tensor, Tensor]:
    return state[f"{name}.weight"][:, :, 0, 0], state[f"{name}.bias"]


def _kernel(matrix: Tensor) -> Tensor:
    return matrix[:, :, None, None]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m models.recipe.first_weights", description=__doc__)
    parser.add_argument("still", type=Path)
    parser.add_argument("video", type=Path)
    parser.add_argument("out", type=Path)
    chosen = parser.parse_args()
    still, video = (torch.load(path, map_location="cpu", weights_only=True) for path in (chosen.still, chosen.video))
    model = converted(still, video)
    torch.save({"model": model.state_dict(), "model_options": model.options.record()}, chosen.out)


if __name__ == "__main__":
    main()
