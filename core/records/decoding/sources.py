"""Files that the decoder reads: encrypted ones of the service's, and plain ones on their owner's machine."""

import io
from pathlib import Path

from core.privacy.facts import Frozen
from core.records.encryption import SealedFile


class PlainFile(Frozen):
    """A file that its owner has on the machine where it is read."""

    path: Path

    def open(self) -> io.FileIO:
        """Open it for reading."""
        return io.FileIO(self.path)


Source = SealedFile | PlainFile
