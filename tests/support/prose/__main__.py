"""Print the figures of the project's words beside ceilings and goals: exit 1 where one is above its ceiling."""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from tests.support.prose.rules import Findings, bad_subject, figures, goals, new_subjects
from tests.support.prose.texts import everything

CEILINGS: Final = Path(__file__).with_name("ceilings.json")


def main() -> int:
    """Check every text of the project."""
    options = argparse.ArgumentParser(prog="python -m tests.support.prose", description=__doc__)
    options.add_argument("--show", metavar="RULE", help='list the places of a rule, such as "long in pages"')
    options.add_argument("--in", dest="within", default="", metavar="PATH", help="of --show: only files that start so")
    options.add_argument("--write", action="store_true", help="lower ceilings to today's figures")
    given = options.parse_args()
    findings = Findings(everything())
    if given.show:
        print(*(at for at in findings.places[given.show] if at.startswith(given.within)), sep="\n")
        return 0
    now, ceilings = figures(findings), json.loads(CEILINGS.read_text())
    if given.write:
        ceilings = {key: max(min(now[key], ceilings.get(key, now[key])), goal) for key, goal in goals().items()}
        CEILINGS.write_text(json.dumps(ceilings, indent=2) + "\n")
    print(f"{'':36}{'now':>9}{'ceiling':>9}{'goal':>9}")
    for key, goal in goals().items():
        print(f"{key:36}{now[key]:9g}{ceilings[key]:9g}{goal:9g}{' TOO HIGH' if now[key] > ceilings[key] else ''}")
    wrong = [subject for subject in new_subjects() if bad_subject(subject)]
    for subject in wrong:
        print(f'A commit subject is at most 72 letters and opens with its part ("Ledger: ..."): {subject}')
    high = [key for key in now if now[key] > ceilings[key]]
    for key in high:
        print(f"{key}: {now[key]:g} is above {ceilings[key]:g}; list the places with --show {key!r}")
    return int(bool(wrong or high))


if __name__ == "__main__":
    sys.exit(main())
