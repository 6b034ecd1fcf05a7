"""Archives: unpacked only where they say, never outside."""

import tarfile
from pathlib import Path

from leco.errors import LecoError


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive; links, devices and paths that leave the folder are refused before anything is written."""
    try:
        with tarfile.open(archive) as content:
            members = content.getmembers()
            for member in members:
                if member.name.startswith("/"):  # would be written below the folder, but was not meant to be
                    raise tarfile.AbsolutePathError(member)
                tarfile.data_filter(member, str(folder))
            content.extractall(folder, members=members, filter="data")
    except tarfile.FilterError as error:
        raise LecoError(f"{archive}: refused: {error}") from None
    except (tarfile.TarError, EOFError, OSError) as error:
        raise LecoError(f"{archive}: cannot be unpacked: {error}") from None
