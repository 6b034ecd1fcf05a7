"""Archives: unpacked only where they say, never outside."""

import lzma
import tarfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

from leco.errors import LecoError


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive, whole or not at all; links, devices and paths that leave the folder are refused."""
    try:
        with TemporaryDirectory(dir=folder, prefix=".unpacking-") as temporary, tarfile.open(archive) as content:
            for member in content:
                if not (member.isfile() or member.isdir()):
                    raise tarfile.SpecialFileError(member)
                if member.name.startswith("/"):  # would be written below the folder, but was not meant to be
                    raise tarfile.AbsolutePathError(member)
                content.extract(member, temporary, filter="data")
            for unpacked in Path(temporary).iterdir():
                target = folder / unpacked.name
                if target.exists():
                    raise LecoError(f"{archive}: {target} is there already; move it away first")
                unpacked.rename(target)
    except tarfile.FilterError as error:
        raise LecoError(f"{archive}: refused: {error}") from None
    except (tarfile.TarError, EOFError, OSError, KeyError, lzma.LZMAError, zlib.error) as error:
        raise LecoError(f"{archive}: cannot be unpacked: {error}") from None
