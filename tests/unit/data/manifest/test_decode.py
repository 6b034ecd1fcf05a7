"""Images with their masks: what is wrong with them, and their pixels, decoded once."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.manifests import complaint, csv, write_image, write_mask

from leco import Ontology
from leco.data.images import decode_image, letterbox, letterbox_mask, letterbox_size, middle_square
from leco.data.manifest.decode import IN_MEMORY, fits_memory
from leco.data.manifest.manifest import read_manifest
from leco.data.manifest_samples import own_samples
from leco.data.masks import decode_mask
from leco.data.samples import Samples


def test_bad_images_are_named_by_row_and_skipped_on_request(folder, street):
    (folder / "cut.png").write_bytes((folder / "a.png").read_bytes()[:60])
    (folder / "text.png").write_text("hello")
    Image.new("CMYK", (4, 4)).save(folder / "print.jpg")
    Image.fromarray(np.full((4, 4), 999, dtype=np.uint16)).save(folder / "deep.png")
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:])
    names = ["a.png", "cut.png", "text.png", "print.jpg", "deep.png", "moving.gif", "cut.png"]
    rows = [f"{name},road,{'v1' if number < 6 else 'v2'}" for number, name in enumerate(names)]
    path = csv(folder, "image,label,version\n" + "\n".join(rows))
    before, calls = list(warnings.filters), []
    manifest, problems = read_manifest(path, street, skip_bad=True, tick=lambda *progress: calls.append(progress))
    assert list(warnings.filters) == before
    assert calls == [(n, 6) for n in range(1, 7)]
    assert manifest.inputs == ("a.png",)
    assert [(p.row, p.file) for p in problems.found] == [(n + 1, name) for n, name in enumerate(names, 1) if n > 1]
    assert problems.counts == {"bad image": 6}
    assert len(read_manifest(path, street, decode=False)[0]) == 6


def test_masks_are_kept_per_version(folder, street):
    write_mask(folder / "a1.png", np.full((4, 6), 2))
    write_mask(folder / "a2.png", np.full((4, 6), 65_535), np.uint16)
    write_mask(folder / "b1.png", np.full((4, 6), 255))
    path = csv(folder, "image,mask,version\na.png,a1.png,v1\na.png,./a2.png,v2\nb.png,b1.png,v1\nc.png,,")
    manifest, _ = read_manifest(path, street)
    assert manifest.labels == {}
    assert manifest.masks == {"v1": ("a1.png", "b1.png", ""), "v2": ("a2.png", "", "")}
    assert decode_mask(folder / "a1.png").max() == 2
    assert decode_mask(folder / "a2.png").max() == decode_mask(folder / "b1.png").max() == -1


def test_bad_masks_are_named_with_pixel_value_and_nearest(folder, street):
    values = np.zeros((4, 6))
    values[2, 5] = 77
    write_mask(folder / "odd.png", values)
    write_mask(folder / "deep.png", np.full((4, 6), 255), np.uint16)
    write_mask(folder / "small.png", np.zeros((3, 6)))
    write_mask(folder / "removed.png", np.full((4, 6), street["v1"].index("fax")))
    write_image(folder / "colour.png", 9)
    names = ["odd.png", "deep.png", "small.png", "removed.png", "colour.png", "none.png"]
    for number, _ in enumerate(names):
        write_image(folder / f"{number}.png", 20 + number)
    path = csv(folder, "image,mask,version\n" + "\n".join(f"{n}.png,{name},v1" for n, name in enumerate(names)))
    text = complaint(path, street)
    near = "which is not a class of v1; the nearest is 7 ('fax'); 255 means no label"
    assert f"row 2: odd.png: pixel (row 2, column 5) has the value 77, {near}" in text
    assert "row 3: deep.png: pixel (row 0, column 0) has the value 255, which is not a class of v1" in text
    assert "row 4: small.png: is 6x3, but 2.png is 6x4" in text
    assert "row 5: removed.png: pixel (row 0, column 0): label 'fax' of v1 is impossible" in text
    assert "row 6: colour.png: is not a mask, which has one channel of class indices, but a RGB image" in text
    assert "row 7: none.png: no such file" in text


def test_a_mask_must_fit_its_image_as_viewers_show_it(folder, street):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (6, 4)).save(folder / "turned.jpg", exif=exif)
    write_mask(folder / "upright.png", np.zeros((6, 4)))
    write_mask(folder / "lying.png", np.zeros((4, 6)))
    path = csv(folder, "image,mask,version\nturned.jpg,upright.png,v1\nturned.jpg,lying.png,v2")
    text = complaint(path, street)
    assert "1 problem " in text
    assert "row 3: lying.png: is 6x4, but turned.jpg is 4x6" in text


def test_masks_are_looked_at_even_where_the_image_is_bad(folder, street):
    write_mask(folder / "odd.png", np.full((4, 6), 99))
    path = csv(folder, "image,mask,version\nmissing.png,odd.png,v1\na.png,,")
    assert read_manifest(path, street, skip_bad=True)[1].counts == {"missing file": 1, "unknown mask value": 1}
    assert "mask 'odd.png' has no version" in complaint(csv(folder, "image,mask,version\na.png,odd.png,"), street)


# --- pixels that are kept, so that no file is decoded twice


@pytest.fixture
def decoded_files(monkeypatch) -> list[str]:
    """The names of all files that Pillow opens."""
    found: list[str] = []
    original = Image.open

    def counted(path, *arguments, **options):
        found.append(Path(path).name)
        return original(path, *arguments, **options)

    monkeypatch.setattr(Image, "open", counted)
    return found


def photograph(path: Path, size: tuple[int, int], seed: int, **options: object) -> None:
    """A smooth picture: a JPEG of it is decoded at another scale with other, but similar, pixels."""
    small = np.random.default_rng(seed).integers(0, 255, (4, 5, 3), dtype=np.uint8)
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(path, **options)


def write_photographs(folder: Path) -> list[str]:
    exif = Image.Exif()
    exif[0x0112] = 6
    photograph(folder / "large.jpg", (400, 300), 0)
    photograph(folder / "turned.jpg", (210, 330), 1, exif=exif)
    photograph(folder / "tiny.png", (7, 5), 2)
    Image.fromarray(np.arange(600, dtype=np.uint8).reshape(20, 30) * 3).convert("P").save(folder / "palette.png")
    return ["turned.jpg", "large.jpg", "tiny.png", "palette.png"]


@pytest.mark.parametrize("side", [16, 64, 350])
def test_images_are_decoded_once_and_kept_as_they_would_be_read(tmp_path, street, decoded_files, side):
    names = write_photographs(tmp_path)
    rows = "\n".join(f"{name},road,v1,{'test' if name == 'turned.jpg' else ''}" for name in names)
    path = csv(tmp_path, f"image,label,version,split\n{rows}\nlarge.jpg,parking-aisle,v2,")
    manifest, _ = read_manifest(path, street, side=side)
    samples = own_samples(manifest, street, side)
    assert sorted(decoded_files) == sorted(names)
    assert manifest.inputs == (*names[1:], names[0])  # test samples last
    assert samples.inputs.values.data_ptr() == manifest.decoded.images.data_ptr()  # held once
    assert torch.equal(samples.inputs.values, torch.stack([middle_square(tmp_path / n, side) for n in manifest.inputs]))
    assert_same(samples, own_samples(read_manifest(path, street)[0], street, side))


def write_masked(folder: Path, street: Ontology) -> tuple[Path, list[str]]:
    names = write_photographs(folder)
    for number, name in enumerate(names):
        shape = decode_image(folder / name).shape[:2]
        for version in ("v1", "v2"):
            labels = np.random.default_rng(number).integers(0, 7, shape)
            labels[0] = 255
            write_mask(folder / f"{version}-{number}.png", labels)
    rows = [f"{name},{v}-{n}.png,{v}" for n, name in enumerate(names[:3]) for v in ("v1", "v2") if (n, v) != (1, "v2")]
    rows += ["palette.png,v1-3.png,v1", "palette.png,v1-3.png,v2"]  # one file is the mask of two versions
    return csv(folder, "image,mask,version\n" + "\n".join(rows)), [*names, *{row.split(",")[1] for row in rows}]


@pytest.mark.parametrize("side", [16, 350])
def test_images_with_masks_are_decoded_once_and_kept_as_they_would_be_read(tmp_path, street, decoded_files, side):
    path, files = write_masked(tmp_path, street)
    decoded_files.clear()
    manifest, _ = read_manifest(path, street, side=side)
    samples = own_samples(manifest, street, side)
    assert sorted(decoded_files) == sorted(files)
    for row, name in enumerate(manifest.inputs):
        assert torch.equal(samples.inputs.values[row], letterbox(tmp_path / name, side))
        assert torch.equal(samples.sizes.values[row], letterbox_size(tmp_path / name, side))
        for version, masks in manifest.masks.items():
            expected = letterbox_mask(decode_mask(tmp_path / masks[row]), side) if masks[row] else torch.tensor(-1)
            assert (samples.labels[version].values[row] == expected).all()
    assert_same(samples, own_samples(read_manifest(path, street)[0], street, side))


def assert_same(kept: Samples, read: Samples) -> None:
    assert kept.labels.keys() == read.labels.keys()
    columns = [(kept.inputs, read.inputs), *((kept.labels[name], read.labels[name]) for name in read.labels)]
    assert (kept.sizes is None) == (read.sizes is None)
    for one, other in [*columns, *([(kept.sizes, read.sizes)] if read.sizes else [])]:
        assert one.values.dtype == other.values.dtype
        assert torch.equal(one.values, other.values)


def test_of_rows_with_a_problem_nothing_is_kept(tmp_path, street):
    path, _ = write_masked(tmp_path, street)
    (tmp_path / "large.jpg").write_bytes(b"no image")
    write_mask(tmp_path / "v1-2.png", np.full((5, 7), 99))  # no class: of tiny.png, only the mask of v2 is left
    with path.open("a") as file:
        file.write("palette.png,v2-3.png,v2\n")  # contradicts another row
    manifest, problems = read_manifest(path, street, side=32, skip_bad=True)
    assert problems.counts == {"contradicting labels": 2, "bad image": 1, "unknown mask value": 1}
    assert manifest.masks["v1"] == ("v1-0.png", "", "v1-3.png")
    assert manifest.masks["v2"] == ("v2-0.png", "v2-2.png", "")
    again, _ = read_manifest(path, street, skip_bad=True)
    assert_same(own_samples(manifest, street, 32), own_samples(again, street, 32))


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "webp", "tif"])
def test_errors_are_the_same_whether_pixels_are_kept_or_not(tmp_path, street, suffix):
    for number in range(12):
        path = tmp_path / f"{number}.{suffix}"
        photograph(path, (90, 70), number)
        path.write_bytes(path.read_bytes()[: 8 + path.stat().st_size * number // 12])
    rows = "\n".join(f"{n}.{suffix},road,v1" for n in range(12))
    path = csv(tmp_path, f"image,label,version\n{rows}")
    assert complaint(path, street, side=16) == complaint(path, street)


def test_an_image_that_would_be_too_large_once_it_is_scaled_is_read_as_it_is_checked(tmp_path, street, monkeypatch):
    Image.new("L", (1, 3000), 7).save(tmp_path / "line.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4000)
    path = csv(tmp_path, "image,label,version\nline.png,road,v1")
    for side in (None, 32):
        manifest, problems = read_manifest(path, street, side=side)
        assert not problems.found
        assert (own_samples(manifest, street, 32).inputs.read(torch.tensor([0])) == 7).all()


def test_nothing_is_kept_beyond_the_limit_of_memory_or_of_another_size(folder, street):
    path = csv(folder, "image,label,version,split\na.png,road,v1,\nb.png,road,v1,test")
    side = int((IN_MEMORY / 3) ** 0.5)
    assert fits_memory(1, side)
    assert not fits_memory(1, side + 1)
    assert fits_memory(1, 10_000, 2) == (IN_MEMORY >= 10**8 * 7)
    assert read_manifest(path, street, side=side + 1)[0].decoded is None
    assert read_manifest(path, street, side=4, decode=False)[0].decoded is None
    assert read_manifest(path, street, side=4, most=1)[0].decoded is None
    manifest, _ = read_manifest(path, street, side=4, most=2)
    assert manifest.decoded.images.shape == (2, 3, 4, 4)
    assert own_samples(manifest, street, 5).inputs.values.shape == (2, 3, 5, 5)
