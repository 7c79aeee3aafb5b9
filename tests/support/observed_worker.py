"""`workers.app`, with observed trainers, and a file `heard.jsonl` beside theirs with a line for each notification."""

import json
import os
from pathlib import Path
from typing import Any

from celery import signals

from workers.app import main


@signals.task_prerun.connect  # type: ignore[untyped-decorator] # Celery ships no types
def write_down(args: Any, **_: Any) -> None:
    """Write which job a notification is for."""
    with Path(os.environ["OBSERVED"]).with_name("heard.jsonl").open("a") as file:
        file.write(json.dumps({"job": args[0]}) + "\n")


if __name__ == "__main__":
    main(trainer="tests.support.observed_trainer")
