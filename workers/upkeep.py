"""The operator's tools: `python -m workers.upkeep TOOL`.

`prepare` is what a cluster runs once before its processes start, since those never change tables. `backup` and
`restore` are for an embedded home. All of them work while the service runs, but for `restore`, which needs the home for
itself.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from core.access import archives
from core.access.bootstrap import further_admin
from core.base.errors import Conflict, Invalid, NotFound, Refusal
from core.base.settings import SITE, SITE_WORDS, ServiceSettings
from core.db.database import Database
from core.ledger.claims import refuse_if_frozen
from core.ledger.signing import load_signing_keys, rotate_signing_key
from core.ledger.witness import comparing
from core.ledger.witness.witness import Witness
from core.operations import backup as copies
from core.operations import reconciling, recovery, roles
from core.records import datasets
from core.records.master_key import add_master_key, check_master_keys, fingerprint_of
from core.records.storage import open_storage
from workers import overlaps as looking
from workers.embedded import holding, prepare, say


def backup(settings: ServiceSettings, to: Path) -> None:
    """Copy database and records into a new folder.

    Raises:
        NotFound: there is no database in this home, or records are missing.
        Conflict: the folder exists.
    """
    database = _open(settings)
    try:
        manifest = copies.backup(database, open_storage(settings), to)
    finally:
        database.dispose()
    size = sum(file.bytes for file in manifest.files)
    say(f"{to}: {len(manifest.files)} files, {size:,} bytes. The witness is not in it; keep that elsewhere.")
    if manifest.master_keys:
        say(
            f"Nor is master key {', '.join(manifest.master_keys)}, without which nobody can read its records. Keep a "
            f"copy of {_key_place(settings)} in a safe, apart from the backups."
        )
    if settings.signing_key_path.exists():
        say(f"Nor is the signing key, {settings.signing_key_path}: keep a copy beside that of the master key.")


def restore(settings: ServiceSettings, source: Path) -> None:
    """Put a backup into an empty home, where its ledger stays frozen.

    Raises:
        NotFound: the folder is no backup.
        Conflict: the home is not empty, or the backup is damaged.
    """
    with holding(settings.home):
        manifest = copies.restore(source, settings)
    say(f"{settings.home}: {len(manifest.files)} files restored. The ledger is frozen until `farthing reconcile`.")
    if not Witness(settings.witness_path).exists():
        say(
            f"There is no witness at {settings.witness_path}: put the newest one there before you reconcile, or what "
            "was spent after the backup is forgotten.",
            error=True,
        )


def rewrap(settings: ServiceSettings, *, fresh: bool = False) -> None:
    """Wrap the key of every dataset and owner, and each webhook's secret, by the current master key.

    The service may run meanwhile. Records and sealed identities stay as they are.

    Args:
        settings: of the home. The new key and the old one are lines of the master key's file, the new one first.
        fresh: make a new key first and put it before the others in the file.

    Raises:
        NotFound: there is no database in this home.
        NotReady: a key that is needed is missing.
        Conflict: a fresh key was asked for, and the keys are not in a file.
    """
    database = _open(settings)
    try:
        with database.read() as session:
            wrapped = datasets.wrapped_keys(session, settings.site)
        check_master_keys(settings, wrapped.values())
        if fresh:
            if settings.master_key is not None:
                raise Conflict("The master key is in the environment, not in a file: put the new one before it there.")
            add_master_key(settings.master_key_path)
        keys = check_master_keys(settings, wrapped.values())
        done = 0
        for name, before in wrapped.items():
            # Rewrapped ones are skipped, so an interrupted run is simply repeated.
            if fingerprint_of(before) != keys.current.fingerprint:
                after = keys.current.wrap(name, keys.unwrap(name, before))
                # The old value is the condition: a key that changed meanwhile is left alone.
                done += database.transaction(datasets.rewrap_key, before, after, settings.site)
    finally:
        database.dispose()
    say(f"{done} of {len(wrapped)} keys were wrapped anew, by master key {keys.current.fingerprint}.")
    if len(keys.keys) > 1:
        say(
            f"The lines below the first in {_key_place(settings)} are not needed any more by this database, but by "
            "backups that were made before."
        )


def rotate(settings: ServiceSettings, *, leaked: bool = False) -> None:
    """Put a fresh signing key in the place of the one that signs; it needs no restart, and no database.

    Args:
        settings: which name the file.
        leaked: somebody else has the old key, so nothing that it signed counts any more.

    Raises:
        NotReady: there is no signing key, or the file holds something else.
    """
    load_signing_keys(settings)
    made = rotate_signing_key(settings.signing_key_path, time.time(), leaked=leaked)
    say(f"{settings.signing_key_path}: key {made.public.kid} signs from now on.")
    if leaked:
        say("The one before it is published no more: its signatures are refused, and documents can be signed anew.")


def _key_place(settings: ServiceSettings) -> str:
    return "FARTHING_MASTER_KEY" if settings.master_key is not None else str(settings.master_key_path)


def reconcile(settings: ServiceSettings, *, without_witness: bool = False) -> None:
    """Raise a ledger that is behind, or was restored, to its witness, and let it go on.

    A ledger that is neither is left alone: reconciling fails every live job at its whole price.

    Args:
        settings: of the home.
        without_witness: go on though the witness is lost, and nobody knows what was spent after the backup: an entry
            of each scope says so, and the scope admits no job until its owner has accepted that.

    Raises:
        NotFound: there is no database, or no witness of its own and `without_witness` is false.
    """
    database = _open(settings)
    witness = Witness(settings.witness_path)
    try:
        database.migrate()
        reasons = comparing.compare(database, witness)
        with database.read() as session:
            try:
                refuse_if_frozen(session)
            except Refusal as frozen:
                # A restored ledger may be frozen though its witness knows nothing against it.
                reasons.append(frozen.detail)
        if not reasons:
            say("The ledger is not frozen and not behind its witness; nothing to do.")
            return
        unknown = reconciling.unwitnessed(database, witness)
        if unknown and not without_witness:
            raise NotFound(
                f"There is no witness of this ledger at {settings.witness_path} that knows {unknown[0]}. Put it there, "
                "or name it with --witness. If it is lost, --without-witness goes on: nobody knows then what was spent "
                "after the backup, and each scope waits until its owner accepts that."
            )
        failed, waiting = reconciling.reconcile(database, witness, without=without_witness)
    finally:
        database.dispose()
    say(f"Reconciled: {len(failed)} live jobs failed at their whole price; the ledger goes on.")
    if waiting:
        say(f"{len(waiting)} scopes admit no job until their owners run `farthing accept`: {', '.join(waiting[:5])}.")


def overlaps(settings: ServiceSettings, above: float) -> None:
    """Print which datasets of different owners share rows, of this site. For the operator alone; the audit log says so.

    Raises:
        NotFound: there is no database in this home.
        NotReady: the storage or the master key is missing.
    """
    database = _open(settings)
    try:
        found = list(looking.overlaps(settings, database, above))
    finally:
        database.dispose()
    for one in found:
        share = f"{one.share:.2f} of the smaller one's rows"
        say(f"{one.first} of {one.owners[0]} and {one.second} of {one.owners[1]}: {share}")
    say(f"{len(found)} pairs of datasets of different owners share more than {above} of their rows.")


def admin_key(settings: ServiceSettings) -> None:
    """Make another admin's key, for whoever holds the database: where the first one was lost.

    Raises:
        NotFound: there is no database in this home.
    """
    database = _open(settings)
    try:
        principal, secret = database.transaction(further_admin)
    finally:
        database.dispose()
    say(f"admin {principal}; keep the line below, it is shown once:", error=True)
    say(secret)


def owner_key(settings: ServiceSettings, principal_id: str) -> None:
    """Make a key for a principal who has lost all of its own; it opens nothing for `key_recovery_seconds`.

    Raises:
        NotFound: there is no database in this home, or no such principal.
        Conflict: the principal is disabled.
    """
    database = _open(settings)
    try:
        key, secret = database.transaction(recovery.recover_key, principal_id, settings.key_recovery_seconds)
    finally:
        database.dispose()
    hours = f"{settings.key_recovery_seconds / 3600:g}"
    say(
        f"key {key.id} of {principal_id} opens nothing for {hours} hours; until then that principal sees it among its "
        "keys and can revoke it. Keep the line below, it is shown once:",
        error=True,
    )
    say(secret)


def make_site(settings: ServiceSettings, name: str) -> None:
    """Make the role by which a site's processes log in to the shared database, or bring its rights up to date.

    Raises:
        Conflict: the database is SQLite.
        Invalid: the name is no site's.
    """
    if not re.fullmatch(SITE, name):
        raise Invalid(f"{name!r} is no site's name: give {SITE_WORDS}, such as north.")
    database = _open(settings)
    try:
        role = roles.make_role(database, name)
    finally:
        database.dispose()
    say(f"{role} has the rights of the site {name}. Give it a password: ALTER ROLE \"{role}\" PASSWORD '...'")


def _open(settings: ServiceSettings) -> Database:
    """Open the home's database, which must be there."""
    # To connect would make an empty SQLite file, so its path is looked at first.
    path = settings.url.removeprefix("sqlite+pysqlite:///")
    if path != settings.url and not Path(path).is_file():
        raise NotFound(f"{settings.home} holds no database.")
    return Database(settings.url)


def archive_audit(settings: ServiceSettings, folder: Path, *, check: bool) -> None:
    """Move lines of the audit log that are older than its retention to a file, or check those files.

    Raises:
        Conflict: lines came in between, or, with `check`, something is wrong.
    """
    database = _open(settings)
    try:
        if check:
            with database.read() as session:
                found, wrong = archives.known(session), archives.problems(session, folder)
            if wrong:
                raise Conflict(f"{len(wrong)} of the audit log's archives: {'; '.join(wrong)}.")
            say(f"{len(found)} archives of the audit log, all whole.")
            return
        made = archives.archive(database, folder, settings.audit_retention_seconds)
    finally:
        database.dispose()
    if made is None:
        say(f"No line of the audit log is older than {settings.audit_retention_seconds / 86400:g} days.")
    else:
        say(f"{folder / made.file}: {made.lines:,} lines, {made.digest}. Keep it: the audit log has them no more.")


TOOLS: Final[dict[str, Callable[[ServiceSettings, argparse.Namespace], None]]] = {
    "prepare": lambda settings, _: prepare(settings),
    "backup": lambda settings, options: backup(settings, options.to),
    "restore": lambda settings, options: restore(settings, options.source),
    "reconcile": lambda settings, options: reconcile(settings, without_witness=options.without_witness),
    "rewrap": lambda settings, options: rewrap(settings, fresh=options.fresh),
    "overlaps": lambda settings, options: overlaps(settings, options.above),
    "rotate-signing-key": lambda settings, options: rotate(settings, leaked=options.leaked),
    "archive-audit": lambda settings, options: archive_audit(settings, options.to, check=options.check),
    "owner-key": lambda settings, options: owner_key(settings, options.principal),
    "admin-key": lambda settings, _: admin_key(settings),
    "site": lambda settings, options: make_site(settings, options.name),
}
"""The function of each command, with the settings and its own arguments."""


def _share(text: str) -> float:
    """Return a share, for argparse."""
    if not 0 <= float(text) < 1:
        raise argparse.ArgumentTypeError("must be from 0 to below 1")
    return float(text)


def main(arguments: list[str] | None = None) -> None:
    """Run one tool; a refusal is printed as text and ends with status 1."""
    os.umask(0o077)  # as in `workers.embedded`
    parser = argparse.ArgumentParser(prog="python -m workers.upkeep", description="The operator's tools.")
    tools = parser.add_subparsers(dest="tool", required=True)
    for name in TOOLS:
        tool = tools.add_parser(name)
        tool.add_argument("--home", type=Path, help="where everything lives")
        tool.add_argument("--witness", type=Path, help="file that keeps the ledger's heads")
    tools.choices["backup"].add_argument("--to", type=Path, required=True, help="a new folder")
    archive = tools.choices["archive-audit"]
    archive.add_argument("--to", type=Path, required=True, help="the folder of the archives")
    archive.add_argument("--check", action="store_true", help="compare the folder's files with what was noted of them")
    tools.choices["restore"].add_argument("--from", type=Path, required=True, dest="source", help="a backup")
    tools.choices["reconcile"].add_argument("--without-witness", action="store_true", help="the witness is lost")
    tools.choices["rewrap"].add_argument("--fresh", action="store_true", help="make a new master key first")
    tools.choices["rotate-signing-key"].add_argument("--leaked", action="store_true", help="others have the old one")
    tools.choices["overlaps"].add_argument(
        "--above", type=_share, default=0.5, help="of the smaller dataset's rows, from 0 to 1; default .5"
    )
    tools.choices["owner-key"].add_argument("principal", help="pr_..., whose keys are lost")
    tools.choices["site"].add_argument("name", help="of the site")
    options = parser.parse_args(arguments)
    given = {name: value for name in ("home", "witness") if (value := getattr(options, name)) is not None}
    settings = ServiceSettings(**given)
    try:
        TOOLS[options.tool](settings, options)
    except Refusal as refusal:
        say(refusal.detail, error=True)
        sys.exit(1)
    except OSError as error:
        say(f"{type(error).__name__}: {error}", error=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
