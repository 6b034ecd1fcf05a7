"""Data as users may have them: photographs of pets whose labels changed twice, in every form that `leco init` takes."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image
from tests.pictures import content

PETS = {
    "v1": {"cat": "", "dog": ""},
    "v2": {"cat": "cat", "husky": "dog", "poodle": "dog"},
    "v3": {"cat": "cat", "husky": "husky", "toy_poodle": "poodle", "large_poodle": "poodle"},
}
EACH, TWICE = 10, 4  # photographs of a class, and how many of them were labelled in the version before, too
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def photograph(folder: Path) -> None:
    """Write photos/VERSION/CLASS/NAME.png."""
    number = 0
    for version, before in zip(PETS, ("", *PETS), strict=False):
        for label, parent in PETS[version].items():
            for n in range(EACH):
                number += 1
                places = [f"{version}/{label}"] + ([f"{before}/{parent}"] if before and n < TWICE else [])
                for place in places:
                    file = folder / "photos" / place / f"{version}-{label}-{n}.png"
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content(number))


def tabulate(folder: Path) -> None:
    """Write the photographs' labels as old.csv, new.csv and all.csv, as COCO, for Label Studio and for Hugging Face."""
    rows = [
        (path.relative_to(folder).as_posix(), path.parent.name, version)
        for version in ("v1", "v2")
        for path in sorted(folder.glob(f"photos/{version}/*/*"))
    ]
    for name, versions in (("old", ["v1"]), ("new", ["v2"]), ("all", ["v1", "v2"])):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("image", "label", "version"), *(row for row in rows if row[2] in versions)])
    for version in ("v1", "v2"):
        own = [(path.removeprefix("photos/"), label) for path, label, v in rows if v == version]
        names = sorted(PETS[version])
        coco = {
            "categories": [{"id": n, "name": name} for n, name in enumerate(names)],
            "images": [{"id": n, "file_name": path} for n, (path, _) in enumerate(own)],
            "annotations": [
                {"id": n, "image_id": n, "category_id": names.index(label)} for n, (_, label) in enumerate(own)
            ],
        }
        tasks = [{"id": n, "image": f"/data/upload/1/{path}", "choice": label} for n, (path, label) in enumerate(own)]
        for kind, written in (("coco", coco), ("studio", tasks)):
            (folder / kind).mkdir(exist_ok=True)
            (folder / kind / f"{version}.json").write_text(json.dumps(written))
        stored = [({"bytes": (folder / "photos" / path).read_bytes(), "path": path}, label) for path, label in own]
        save_dataset(folder / "saved" / version, [(image, names.index(label)) for image, label in stored], names)


def save_dataset(
    folder: Path,
    rows: list[tuple[object, object]],
    names: list[str] | None,
    file_format: bool = False,
    kind: pa.DataType = IMAGE,
) -> None:
    """Write images and labels as Hugging Face's `save_to_disk` does, half of them in each of two files."""
    folder.mkdir(parents=True)
    label = {"names": names, "_type": "ClassLabel"} if names else {"dtype": "string", "_type": "Value"}
    schema = pa.schema([("image", kind), ("label", pa.int64() if names else pa.string())])
    files = []
    for number in range(2):
        part = rows[number::2]
        columns = [pa.array([row[place] for row in part], type=schema.field(place).type) for place in range(2)]
        table = pa.Table.from_arrays(columns, schema=schema)
        files.append({"filename": f"data-{number:05}-of-00002.arrow"})
        new = pa.ipc.new_file if file_format else pa.ipc.new_stream
        with pa.OSFile(str(folder / files[-1]["filename"]), "wb") as sink, new(sink, schema) as writer:
            writer.write_table(table)
    info = {"citation": "", "description": "", "features": {"image": {"_type": "Image"}, "label": label}}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    state = {"_data_files": files, "_fingerprint": "0123456789abcdef", "_format_columns": None, "_split": None}
    (folder / "state.json").write_text(json.dumps(state))


def label_twice(folder: Path) -> None:
    """Write both.csv, and masks_v1 and masks_v2 with their class lists: the same samples under two versions."""
    rows = [(parent, label) for label, parent in PETS["v2"].items() for _ in range(EACH)]
    with (folder / "both.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("label_v1", "label_v2"), *rows])
    for version, pixels in (("v1", [[0, 1, 1]]), ("v2", [[0, 1, 2]])):
        (folder / f"{version}.csv").write_text("id,name\n" + "".join(f"{n},{c}\n" for n, c in enumerate(PETS[version])))
        (folder / f"masks_{version}").mkdir()
        for n in range(5):
            mask = np.array(pixels, dtype=np.uint8).repeat(4, axis=0)
            Image.fromarray(mask).save(folder / f"masks_{version}" / f"{n}.png")


def measure(folder: Path) -> None:
    """Write vectors.npy, more.npz and table.csv, and `vectors`: a project whose samples are feature vectors."""
    vectors = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    project = folder / "vectors"
    project.mkdir()
    for place in (folder, project):
        np.save(place / "vectors.npy", vectors)
    np.savez(folder / "more.npz", vectors)
    np.savetxt(folder / "table.csv", vectors, delimiter=",")
    labels = [("v1", list(PETS["v1"])), ("v2", list(PETS["v2"]))]
    rows = [
        f"vectors.npy#{n},{labels[n % 2][1][n // 2 % len(labels[n % 2][1])]},{labels[n % 2][0]},"
        + ("test" if n >= 30 else "train")
        for n in range(40)
    ]
    (project / "labels.csv").write_text("\n".join(["features,label,version,split", *rows]) + "\n")
    _write_project(project)


def paint(folder: Path) -> None:
    """Write `street`, a project of images with masks."""
    project = folder / "street"
    project.mkdir()
    rows = []
    generator = np.random.default_rng(0)
    for n in range(12):
        version = "v2" if n % 2 else "v1"
        mask = generator.integers(0, len(PETS[version]), (4, 4)).astype(np.uint8).repeat(8, axis=0).repeat(8, axis=1)
        Image.fromarray(mask).save(project / f"mask-{n}.png")
        Image.fromarray(np.stack([mask * 80] * 3, axis=-1)).save(project / f"photo-{n}.png")
        rows.append(f"photo-{n}.png,mask-{n}.png,{version},{'test' if n >= 8 else 'train'}")
    (project / "labels.csv").write_text("\n".join(["image,mask,version,split", *rows]) + "\n")
    _write_project(project)


def _write_project(folder: Path) -> None:
    classes = {name: {"from": parent} if parent != name else None for name, parent in PETS["v2"].items()}
    versions = [{"name": "v1", "classes": list(PETS["v1"])}, {"name": "v2", "classes": classes}]
    (folder / "ontology.json").write_text(json.dumps({"versions": versions}))
    (folder / "experiment.yaml").write_text(
        "data: {manifest: labels.csv, ontology: ontology.json}\nmethod: lpl\n"
        "training: {batches: {steps: 2, size: 4, evaluate_every: 2}}\n"
    )
