"""The recipe of the small bundle: the same seed gives the same scenes, the same run, and a model of the contract."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from labeler import prompts
from labeler.types import Point
from models.recipe import compositor, losses, norms, sources, tokens
from models.recipe.batches import Store
from models.recipe.clicks import Targets, corrected
from models.recipe.decoder import Answer, Maps
from models.recipe.draws import Draws
from models.recipe.encoder import IMAGE_CHANNELS, READOUT_CHANNELS
from models.recipe.graphs import folded, graphs
from models.recipe.layers import layers
from models.recipe.model import Model
from models.recipe.options import ModelOptions, TrainOptions
from models.recipe.packing import Features, pack, remembered, unpack
from models.recipe.render import render
from models.recipe.sources import Bank
from models.recipe.steps import picture_step
from models.recipe.textures import divided
from models.recipe.train import begin, begin_from, resume, train

CPU = torch.device("cpu")
SMALL = ModelOptions(widths=(8, 8, 8, 8, 16), decoder=(16, 8, 8), codes=4)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small folder as the recipe reads it: discs of many colours as fruit, cut-outs, cells and backgrounds."""
    root = tmp_path_factory.mktemp("material")
    rng = np.random.default_rng(3)
    for number in range(24):
        for folder, mode, name in (
            (f"fruit/kind{number}", "RGB", "0.jpg"),
            ("emoji", "RGBA", f"{number:04x}.webp"),
            ("clipart", "RGBA", f"{number:04d}.webp"),
        ):
            picture = Image.new(mode, (100, 100), "white" if mode == "RGB" else (0, 0, 0, 0))
            colour = tuple(rng.integers(0, 200, 3).tolist())
            ImageDraw.Draw(picture).ellipse([15, 20 + number, 80, 85], fill=colour)
            (root / folder).mkdir(parents=True, exist_ok=True)
            picture.save(root / folder / name)
        noise = rng.integers(0, 255, (120, 160, 3), dtype=np.uint8)
        cells = np.zeros((120, 160), np.uint16)
        cells[20:60, 30:70], cells[60:90, 90:140] = 1, 2
        for folder, array, name in (
            ("background", noise, f"b{number}.jpg"),
            ("nuclei", noise, f"{number:03d}.webp"),
            ("nuclei", cells, f"{number:03d}_instances.png"),
        ):
            (root / folder).mkdir(exist_ok=True)
            Image.fromarray(array).save(root / folder / name)
    return root


@pytest.fixture(scope="module")
def bank(material: Path) -> Bank:
    return sources.load(material, "train")


@pytest.fixture(scope="module")
def rendered(bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("scenes")
    render(bank, out, name="scenes", count=16, frames=1, seed=1, device=CPU)
    render(bank, out, name="clips", count=16, frames=3, seed=2, device=CPU)
    return out


def test_held_out_material_is_another(material: Path, bank: Bank) -> None:
    held_out = sources.load(material, "held_out")
    ours = {sprite.numpy().tobytes() for sprite in bank.sprites}
    theirs = {sprite.numpy().tobytes() for sprite in held_out.sprites}
    assert theirs
    assert not ours & theirs
    assert len(bank.nuclei) + len(held_out.nuclei) == 24


def test_a_backdrop_is_cut_from_both_ends_of_a_photograph(tmp_path: Path, material: Path) -> None:
    (tmp_path / "background").mkdir()
    for folder in ("fruit", "emoji", "clipart", "nuclei"):
        (tmp_path / folder).symlink_to(material / folder)
    wide = Image.new("RGB", (300, 100), "red")
    wide.paste("blue", (150, 0, 300, 100))
    wide.save(tmp_path / "background" / "wide.png")
    Image.new("RGB", (90, 90), "green").save(tmp_path / "background" / "square.png")
    colours = [tuple(each[:, 160, 160].tolist()) for each in sources.load(tmp_path, "train", limit=4).backdrops]
    assert colours == [(0, 128, 0), (255, 0, 0), (0, 0, 255)]


def test_divided_surfaces_have_two_sides() -> None:
    shares = divided(Draws(4), 200, 32).float().mean((1, 2, 3))
    both = ((shares > 0.05) & (shares < 0.95)).float().mean()
    assert float(both) > 0.8


def test_some_scenes_are_seen_from_close(bank: Bank) -> None:
    made = layers(bank, Draws(9), 200, slots=5, moving=False)
    close = made[0].size > 250
    assert 5 <= int(close.sum()) <= 50
    assert not any(bool(layer.active[close].any()) for layer in made[3:])
    assert bool(made[3].active[~close].any())


def test_fruit_is_cut_out_of_its_white_ground(bank: Bank) -> None:
    fruit = bank.sprites[bank.kinds.index("fruit")]
    alpha = fruit[3].float() / 255
    rows, columns = torch.where(alpha > 0.5)
    ellipse = np.pi / 4 * float((rows.max() - rows.min() + 1) * (columns.max() - columns.min() + 1))
    assert float(alpha.sum()) == pytest.approx(ellipse, rel=0.05)
    assert int(fruit[:3, alpha > 0.9].max()) < 238


def test_the_same_seed_draws_the_same_scenes(bank: Bank) -> None:
    images, labels = compositor.scenes(bank, Draws(5), 3)
    again = compositor.scenes(bank, Draws(5), 3)
    other, _ = compositor.scenes(bank, Draws(6), 3)
    assert torch.equal(images, again[0])
    assert torch.equal(labels, again[1])
    assert not torch.equal(images, other)


def test_labels_name_whole_piece_and_region_together(bank: Bank) -> None:
    _, labels = compositor.scenes(bank, Draws(8), 6)
    whole, piece, region = labels[:, 0].unbind(1)
    assert torch.equal(whole > 0, piece > 0)
    assert torch.equal(whole > 0, region > 0)
    assert bool((whole <= piece).all()), "a piece is numbered after the thing that it joins"
    assert bool((whole < piece).any())


def test_things_move_in_clips(bank: Bank) -> None:
    _, labels = compositor.scenes(bank, Draws(9), 6, frames=3)
    first, last = labels[:, 0, 0], labels[:, 2, 0]
    shared = set(first.unique().tolist()) & set(last.unique().tolist()) - {0}
    assert shared
    assert float((first != last).float().mean()) > 0.02


def test_a_crowd_is_of_many_things_apart(bank: Bank) -> None:
    images, labels = compositor.crowds(bank, Draws(7), 6)
    assert images.shape == labels.shape == (6, 1, 3, 256, 256)
    assert all(len(label[0, 0].unique()) > 10 for label in labels)
    assert torch.equal(labels[:, 0, 0], labels[:, 0, 1]), "each is a whole of its own"


def test_one_chunk_in_six_is_of_crowds_and_one_of_nuclei(bank: Bank, tmp_path: Path) -> None:
    render(bank, tmp_path, name="scenes", count=96, frames=1, seed=1, device=CPU)
    labels = np.load(tmp_path / "scenes-labels.npy").reshape(6, 16, 3, -1)
    things = [np.mean([len(np.unique(label[0])) - 1 for label in chunk]) for chunk in labels]
    assert [count > 10 for count in things] == [False, False, False, True, False, False]
    assert [bool((chunk[:, 0] == chunk[:, 2]).all()) for chunk in labels] == [False] * 5 + [True]


def test_a_longer_file_begins_with_the_shorter_one(bank: Bank, rendered: Path, tmp_path: Path) -> None:
    render(bank, tmp_path, name="scenes", count=32, frames=1, seed=1, device=CPU)
    for part in ("images", "labels"):
        longer, shorter = (np.load(folder / f"scenes-{part}.npy") for folder in (tmp_path, rendered))
        assert np.array_equal(longer[:16], shorter)


@pytest.mark.parametrize("positive", [True, False])
def test_tokens_are_those_of_the_host(positive: bool) -> None:
    points = (Point(12.5, 200.0), Point(300.25, 7.0, positive))
    constants = {kind: tokens.embedding(kind).numpy() for kind in tokens.KINDS} | {
        "gaussian": tokens.gaussian().numpy()
    }
    host = prompts.encode(points, None, constants, height=240, width=320, tokens=8)
    places = torch.tensor(
        [[[2 * (p.x * 1024 / 320 + 0.5) / 1024 - 1, 2 * (p.y * 1024 / 240 + 0.5) / 1024 - 1] for p in points]]
    )
    ours, mask = tokens.points(places, torch.tensor([[True, positive]]), 8)
    np.testing.assert_allclose(ours[0].numpy(), host.sparse_nc, atol=2e-5)
    assert np.array_equal(mask[0].numpy(), host.token_mask_n)


@pytest.mark.parametrize(("x", "y"), [(-0.97, 0.3), (0.0, 0.0), (0.61, -0.88)])
def test_a_bump_stands_at_its_point_and_is_as_wide_as_asked(x: float, y: float) -> None:
    sparse, mask = tokens.points(torch.tensor([[[x, y]]]), torch.tensor([[True]]), 4)
    bump = tokens.Bumps(64, 0.12)(sparse, tokens.kind_gate(sparse, mask, "positive"))[0, 0]
    axis = 2 * (torch.arange(64) + 0.5) / 64 - 1
    true = torch.exp(-((axis[None] - x) ** 2 + (axis[:, None] - y) ** 2) / (2 * 0.12**2))
    torch.testing.assert_close(bump, true, atol=2e-3, rtol=0)
    assert float(tokens.Bumps(64, 0.12)(sparse, tokens.kind_gate(sparse, mask, "negative")).max()) == 0


def test_a_correction_is_clicked_in_the_largest_error() -> None:
    mask, said = torch.zeros(2, 1, 256, 256), torch.full((2, 1, 256, 256), -1.0)
    mask[:, :, 40:120, 40:120] = 1
    said[0, :, 40:120, 40:60] = 1
    said[1, :, 40:120, 40:240] = 1
    targets = Targets(
        mask.expand(-1, 3, -1, -1), torch.zeros(2, dtype=torch.long), torch.ones(2), torch.zeros(2, 1, 2), torch.ones(2)
    )
    places, positive = corrected(targets, said)
    assert positive.tolist() == [[True, True], [True, False]]
    columns = (places[:, 1, 0] + 1) * 128
    assert 60 < float(columns[0]) < 120
    assert 120 < float(columns[1]) < 240


def test_every_graph_takes_and_gives_the_contracts_parts() -> None:
    with torch.no_grad():
        for graph in graphs(folded(Model(SMALL))):
            results = graph.module(*(torch.zeros(1, *part.shape) for part in graph.inputs))
            shapes = [tuple(result.shape[1:]) for result in results]
            assert shapes == [part.shape for part in graph.outputs], graph.role


def test_folding_batch_norms_changes_nothing() -> None:
    torch.manual_seed(0)
    model = Model(SMALL)
    images = torch.randn(2, 3, 256, 256)
    model.train()
    model.encoder(images)
    model.eval()
    with torch.no_grad():
        before = model.encoder(images)
        after = folded(model).encoder(images)
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def _answer(model: Model, places: list[list[float]], positive: list[bool], count: int) -> torch.Tensor:
    torch.manual_seed(1)
    maps = model.decoder.maps(
        torch.randn(1, IMAGE_CHANNELS, 64, 64), torch.randn(1, 32, 256, 256), torch.randn(1, 64, 128, 128)
    )
    sparse, mask = tokens.points(torch.tensor([places]), torch.tensor([positive]), count)
    answer = model.decoder(maps, sparse, mask, torch.ones(1, 1), torch.zeros(1, READOUT_CHANNELS, 64, 64))
    return answer.masks


@torch.no_grad()
def test_graphs_hand_on_all_that_the_decoder_and_memory_ask_for() -> None:
    torch.manual_seed(0)
    model = Model(SMALL).eval()
    pix, hi0, hi1 = model.encoder(torch.randn(2, 3, 256, 256))
    given = Features(model.decoder.maps(pix, hi0, hi1), model.decoder.keys(pix), model.memory.look(pix))
    packed = pack(given)
    assert [tuple(x.shape) for x in packed] == [(2, 256, 64, 64), (2, 32, 256, 256), (2, 64, 128, 128)]
    assert not packed[0][:, IMAGE_CHANNELS:].any(), "nothing is remembered yet"
    found = unpack(*packed, ground=SMALL.decoder[0], codes=SMALL.codes)
    for field in fields(Maps):
        assert torch.equal(getattr(found.maps, field.name), getattr(given.maps, field.name)), field.name
    assert torch.equal(found.keys, given.keys)
    assert torch.equal(found.look, given.look)
    assert all(torch.equal(*pair) for pair in zip(remembered(packed[0]), (given.keys, given.look), strict=True))


def test_a_run_can_begin_with_the_weights_of_another(rendered: Path, tmp_path: Path) -> None:
    options = replace(TrainOptions(), steps=2, images=1, clicks=1, clips=1, objects=1, clips_from=0.5)
    first = begin(SMALL, options, CPU)
    list(train(first, rendered, CPU))
    first.save(tmp_path / "last.pt")
    second = begin_from(tmp_path / "last.pt", options, CPU)
    assert (second.step, second.progress) == (0, 0.0)
    expected = first.model.state_dict()
    assert all(torch.equal(expected[name], value) for name, value in second.model.state_dict().items())
    keys = second.model.decoder.key.weight.clone()
    list(train(second, rendered, CPU))
    assert second.settled
    # Whitening would have replaced them.
    torch.testing.assert_close(second.model.decoder.key.weight, keys, atol=0.01, rtol=0.0)
    found = second.model.state_dict()
    rest = [name for name in expected if name.endswith(("running_mean", "running_var"))]
    assert all(torch.equal(expected[name], found[name]) for name in rest), "batch norms stay at rest"


def test_waking_a_model_keeps_its_answers_and_gives_its_filters_room(rendered: Path) -> None:
    run = begin(SMALL, TrainOptions(), CPU)
    options = replace(TrainOptions(), steps=3, images=1, clicks=1, settle_from=0.5, clips_from=1.0)
    run.options = options
    list(train(run, rendered, CPU))
    model = run.model.eval()
    with torch.no_grad():
        for conv in (model.encoder.up32[0], model.decoder.down64[0]):
            conv.weight.mul_(0.01)

    def loss() -> float:
        images, labels = (x[:, 0] for x in Store.open(rendered, "scenes").take(Draws(1), 4))
        with torch.no_grad():
            return float(picture_step(model, images, labels, Draws(2), options, fine=False)[0])

    before = loss()
    norms.wake(model, lambda: loss() and None)
    assert not model.training
    assert loss() == pytest.approx(before, rel=1e-3)
    lengths = model.encoder.up32[0].weight.flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 3**-0.5))
    # The statistics are those of what the norms see: awake, the model answers nearly alike.
    model.train()
    assert loss() == pytest.approx(before, rel=0.05)


def test_a_woken_run_settles_again(rendered: Path, tmp_path: Path) -> None:
    options = replace(TrainOptions(), steps=2, images=1, clicks=1, clips_from=1.0)
    first = begin(SMALL, options, CPU)
    list(train(first, rendered, CPU))
    first.save(tmp_path / "last.pt")
    second = begin_from(tmp_path / "last.pt", replace(options, wake=True), CPU)
    list(train(second, rendered, CPU, until=1))
    assert not second.settled
    assert not second.keyed, "memory's keys are looked for again"
    list(train(second, rendered, CPU))
    assert second.settled


@pytest.mark.parametrize("seed", range(4))
def test_fine_masks_are_judged_wherever_the_draw_falls(seed: int) -> None:
    mask = torch.zeros(1, 1, 256, 256)
    mask[:, :, 40:121, 50:133] = 1
    right = 20 * (2 * mask - 1).expand(1, 4, 256, 256)
    answers = [
        Answer(masks, torch.zeros(1, 4, 128, 128), torch.zeros(1, 4, 32, 32), torch.ones(1, 4), torch.ones(1, 1))
        for masks in (right, right.roll(40, 3))
    ]
    targets = Targets(
        mask.expand(-1, 3, -1, -1), torch.zeros(1, dtype=torch.long), torch.ones(1), torch.zeros(1, 1, 2), torch.ones(1)
    )
    good, true = losses.clicked(answers[0], targets, fine=Draws(seed), ambiguous=True)
    bad, _ = losses.clicked(answers[1], targets, fine=Draws(seed), ambiguous=True)
    rough, _ = losses.clicked(answers[0], targets, fine=None, ambiguous=True)
    assert torch.equal(true, torch.ones(1, 4))
    assert float(good) < float(rough) < float(bad)


@torch.no_grad()
def test_further_points_matter_and_empty_tokens_do_not() -> None:
    torch.manual_seed(0)
    model = Model(SMALL).eval()
    one = _answer(model, [[0.1, 0.2]], [True], 8)
    torch.testing.assert_close(_answer(model, [[0.1, 0.2]], [True], 3), one)
    near = float((_answer(model, [[0.1, 0.2], [-0.5, 0.4]], [True, True], 8) - one).abs().max())
    far = float((_answer(model, [[0.1, 0.2], [-0.5, 0.4]], [True, False], 8) - one).abs().max())
    assert near > 1e-3
    assert far > 1e-3


def test_a_run_that_was_stopped_goes_on_bit_for_bit(rendered: Path, tmp_path: Path) -> None:
    options = replace(
        TrainOptions(),
        steps=4,
        images=1,
        clicks=1,
        clips=1,
        objects=1,
        settle_from=0.25,
        clips_from=0.5,
        corrections=1.0,
    )
    whole = begin(SMALL, options, CPU)
    logs = list(train(whole, rendered, CPU))
    assert [name for name in logs[2] if name.startswith("frame")], "the third step was of a clip"
    stopped = begin(SMALL, options, CPU)
    list(train(stopped, rendered, CPU, until=2))
    stopped.save(tmp_path / "last.pt")
    continued = resume(tmp_path / "last.pt", CPU)
    list(train(continued, rendered, CPU))
    expected = whole.model.state_dict()
    found = continued.model.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert not torch.equal(expected["memory.temporal"], Model(SMALL).memory.temporal), "memory has learnt"


def test_a_clock_ends_a_run_with_a_finished_schedule(rendered: Path) -> None:
    run = begin(SMALL, replace(TrainOptions(), images=1, clicks=1), CPU)
    logs = list(train(run, rendered, CPU, minutes=0.05))
    assert run.step < run.options.steps
    assert run.progress >= 1
    assert all(row["progress"] < 1 for row in logs)
