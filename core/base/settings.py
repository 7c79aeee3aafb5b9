"""The service's own settings: every option of `farthing up` is also FARTHING_... in the environment.

FARTHING_..._FILE names a file that holds the setting instead, so that no secret need be in the environment.
"""

import os
import sys
from functools import cached_property
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from core.base.patterns import Pattern

_PREFIX: Final = "FARTHING_"
SITE: Final = "[a-z0-9][a-z0-9-]{0,39}"
"""The regular expression of a site's name."""
SITE_WORDS: Final = "1 to 40 lower-case letters, digits or hyphens, the first no hyphen"
"""The same in words."""

ADDRESS: Final = (
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,64}){0,8}"
    r"@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){0,8}[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
)
"""Form of an email address: plain words in ASCII, so that it can end no line and no field of a mail."""


def _networks(text: str) -> str:
    """Return a comma-separated list of networks unchanged; raise ValueError for other text."""
    for one in filter(None, text.split(",")):
        ip_network(one.strip())
    return text


class Files(PydanticBaseSettingsSource):
    """Source of settings in files: the text of the file that FARTHING_..._FILE names, without blanks around it.

    A setting with a `..._file` setting of its own is skipped here; the code that uses that file reads it.
    """

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[str | None, str, bool]:
        """Return a setting's text, None where no file is named for it."""
        del field
        own = f"{field_name}_file" in self.settings_cls.model_fields
        path = None if own else os.environ.get(f"{_PREFIX}{field_name.upper()}_FILE")
        return (Path(path).read_text(encoding="utf-8").strip() if path else None), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return all settings for which a file was named."""
        fields = self.settings_cls.model_fields.items()
        found = {name: self.get_field_value(field, name)[0] for name, field in fields}
        return {name: text for name, text in found.items() if text is not None}


def _read_place(value: object) -> object:
    """Return a file's name as a Path, an object's address as it is: a Path would drop one of its two slashes."""
    return Path(value) if isinstance(value, str) and "://" not in value else value


class ServiceSettings(BaseSettings):
    """The settings of every process. Times are in seconds, sizes in bytes."""

    # Errors show no input: it has the admin key and passwords in it.
    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True)

    home: Path = Path(".farthing")
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    proxy: Annotated[str, AfterValidator(_networks)] = Field(
        default="", description="addresses of the front proxy, whose X-Forwarded-For counts: 127.0.0.1,10.1.0.0/16"
    )
    without_proxy: bool = Field(
        default=False, description="listens beyond this machine although no proxy stands before it, and warns"
    )
    workers: int = Field(default=1, ge=0, le=64, description="trainer processes at a time on this machine")
    database_url: str | None = Field(default=None, description="SQLAlchemy URL; default: SQLite under home")
    database_password: str | None = Field(default=None, description="put into database_url, which need not name it")
    witness: Annotated[Path | str | None, BeforeValidator(_read_place)] = Field(
        default=None, description="outside the database: a file, or s3://bucket/prefix; default: home/witness.jsonl"
    )
    admin_key: str | None = None
    master_key: str | None = Field(
        default=None, repr=False, description="base64 of 32 bytes; default: the content of master_key_file"
    )
    master_key_file: Path | None = Field(
        default=None, description="holds the master key; default: home/master.key, made once where embedded"
    )
    signing_key_file: Path | None = Field(
        default=None, description="holds the key that signs certificates; default: home/signing.key"
    )
    storage_url: str | None = Field(default=None, description="records' place: a folder or s3://...; default: home")

    broker_url: str | None = Field(default=None, description="redis://...; none: supervisors poll the database only")
    broker_password: str | None = Field(default=None, description="put into broker_url, which need not name it")
    queues: str = Field(default="cpu", description="the jobs that a supervisor takes: cpu, gpu, or cpu,gpu")
    gpu_memory_bytes: int = Field(default=2 * 2**30, ge=0, description="that must be free on a GPU before a claim")
    gpu_locks: Path | None = Field(
        default=None, description="folder that all supervisors of a machine share; default: that of temporary files"
    )
    cluster: bool = Field(default=False, description="several machines: processes never migrate the database")
    site: Annotated[str, Pattern(f"^({SITE})?$", f"empty, or {SITE_WORDS}", "north")] = Field(
        default="",
        description="the site whose records alone this process keeps and reads; empty: the service's own",
    )
    meeting_host: str | None = Field(
        default=None, description="by which other sites reach this one's trainers; none: no federated jobs of several"
    )
    meeting_port: int = Field(default=0, ge=0, le=65535, description="where they find each other; 0: any that is free")
    seat_seconds: float = Field(
        default=60.0, gt=0, description="seconds that a worker stays free for the other sites of a federated job"
    )

    absent_seconds: float = Field(
        default=3600.0,
        gt=0,
        description="seconds that a federated job with a quorum waits for a site, once it has begun",
    )

    poll_seconds: float = Field(default=0.2, gt=0)
    beat_seconds: float = Field(default=10.0, gt=0)
    lease_seconds: float = Field(default=60.0, gt=0)
    sweep_seconds: float = Field(default=15.0, gt=0)
    verify_seconds: float = Field(
        default=86400.0, gt=0, description="after so long each chain is verified whole again, and not what is new only"
    )
    visible_grid_seconds: float = Field(default=1.0, ge=0, description="progress and results appear on this time grid")
    max_attempts: int = Field(default=3, ge=1, le=10)
    max_runtime_seconds: float = Field(default=3600.0, gt=0, description="wall-clock limit of one attempt")
    max_memory_bytes: int = Field(default=16 * 2**30, gt=0, description="address space of one trainer")
    trainer_threads: int = Field(default=1, ge=1)
    max_processes: int = Field(
        default_factory=lambda: min(os.cpu_count() or 8, 64), ge=1, le=64, description="most that one job may ask for"
    )
    max_clients: int = Field(default=16, ge=2, le=32, description="most that one federated job may have")
    max_gpu_processes: int = Field(
        default=1, ge=1, le=64, description="the same on GPUs, one for each; several need workers.torchrun_entry"
    )
    torchrun_store: str | None = Field(
        default=None, description="host:port of a group's store; workers.torchrun_entry sets it"
    )

    max_upload_bytes: int = Field(default=2 * 2**30, gt=0)
    max_rows: int = Field(default=20_000_000, gt=0)
    max_columns: int = Field(default=2_000, gt=0)
    decode_seconds: float = Field(default=600.0, gt=0)
    decode_memory_bytes: int = Field(default=4 * 2**30, gt=0)
    max_body_bytes: int = Field(default=2**20, gt=0, description="of a JSON request")
    max_predict_bytes: int = Field(default=256 * 2**20, gt=0, description="of a file of rows to predict")
    max_predict_rows: int = Field(default=1_000_000, gt=0, description="of such a file")

    body_seconds: float = Field(default=30.0, gt=0, description="for a JSON body, and for a pause in any body")
    upload_seconds: float = Field(default=3600.0, gt=0, description="for the body of an upload")
    upload_bytes_per_second: int = Field(default=4096, ge=0, description="least mean rate of an upload's body")
    stream_seconds: float = Field(default=3600.0, gt=0, description="then an event stream ends; clients go on after it")
    place_seconds: float = Field(default=20.0, ge=0, description="the most seconds that a request waits for a place")
    max_connections: int = Field(default=1000, ge=8, description="open at a time; further ones get 503")
    max_requests: int = Field(default=64, ge=1, description="short requests that are answered at a time")
    max_requests_per_principal: int = Field(default=24, ge=1, description="the same, of one principal or address")
    max_heavy: int = Field(default=4, ge=1, description="long computations that are made at a time")
    max_heavy_per_principal: int = Field(default=1, ge=1, description="the same, of one principal")
    heavy_share: float = Field(
        default=0.25, gt=0, le=1, description="of the time that one principal computes, while others ask too"
    )
    light_share: float = Field(
        default=0.5, gt=0, description="of the time that one principal's short requests take, while others ask too"
    )
    max_uploads: int = Field(default=8, ge=1, description="uploads that are received and decoded at a time")
    max_uploads_per_principal: int = Field(default=2, ge=1, description="the same, of one principal")
    max_streams: int = Field(default=512, ge=1, description="event streams and long polls that are open at a time")
    max_streams_per_principal: int = Field(default=64, ge=1, description="the same, of one principal")

    disk_bytes_per_owner: int = Field(
        default=50 * 2**30, gt=0, description="records and public weights that one principal may have stored here"
    )
    min_free_disk_bytes: int = Field(default=512 * 2**20, ge=0, description="with less, uploads are refused")

    key_recovery_seconds: float = Field(
        default=86400.0, ge=0, description="until a key that `owner-key` made opens anything: its owner may revoke it"
    )

    audit_retention_seconds: float = Field(
        default=366 * 86400.0, gt=0, description="older lines of the audit log go where `archive-audit` is run"
    )

    notice_seconds: float = Field(default=5.0, gt=0, description="between two looks for events to tell people of")
    webhook_seconds: float = Field(default=10.0, gt=0, description="for one delivery to a webhook, from name to answer")
    webhook_http: bool = Field(default=False, description="webhooks may have addresses without TLS, for tests")
    webhook_networks: Annotated[str, AfterValidator(_networks)] = Field(
        default="", description="not public, and webhooks may be there all the same: such as 10.1.0.0/16,fd00:1::/64"
    )
    smtp_host: str | None = Field(default=None, description="of the server that takes mail; none: no mail is sent")
    smtp_port: int = Field(default=587, ge=1, le=65535)
    smtp_tls: Literal["starttls", "tls", "none"] = Field(
        default="starttls", description="TLS of mail: begun by STARTTLS, from the first byte, or none"
    )
    smtp_user: str | None = None
    smtp_password: str | None = Field(default=None, repr=False)
    smtp_seconds: float = Field(default=15.0, gt=0, description="for each answer of that server")
    mail_from: Annotated[str, Pattern(f"^({ADDRESS})?$", "an email address, or empty", "farthing@data.example")] = (
        Field(default="", description="the sender of mail; needed with smtp_host")
    )
    console_url: Annotated[str, Pattern(r"^(https?://[!-~]{1,200})?$", "https://...", "https://data.example")] = Field(
        default="", description="at which people open the console; mail links to it"
    )

    max_queued_per_principal: int = Field(default=1000, ge=1, description="jobs that have not ended")
    max_running_per_principal: int = Field(default=64, ge=1, description="further jobs wait in the queue")
    max_mock_rows: int = Field(default=100_000, ge=1, description="that one mock job may draw")
    max_mock_running_per_principal: int = Field(default=1, ge=1, description="mock jobs; further ones wait")
    max_mock_per_day: int = Field(default=100, ge=0, description="mock jobs of one principal in 24 hours; 0: none")
    mock_seconds: float = Field(default=600.0, gt=0, description="wall-clock limit of one attempt at a mock job")
    mock_retention_seconds: float = Field(
        default=7 * 86400.0, ge=86400, description="seconds that an ended mock job and its model are kept"
    )
    kept_state_seconds: float = Field(
        default=86400.0, gt=0, description="seconds that the states of an ended job are kept"
    )
    model_retention_seconds: float | None = Field(default=None, gt=0, description="none: models are kept for ever")
    requests_per_minute: int = Field(default=6000, ge=1)
    queue_deadline_seconds: float = Field(default=7 * 86400.0, gt=0)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments first, then FARTHING_..., then the files that FARTHING_..._FILE names."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, Files(settings_cls)

    @model_validator(mode="after")
    def _checks_types(self) -> Self:
        """Refuse `python -O`: it removes assertions. Conditions of the guarantee are checked even there (`ensure`)."""
        if sys.flags.optimize:
            raise ValueError("Farthing does not run under python -O or PYTHONOPTIMIZE: start it without them.")
        return self

    @model_validator(mode="after")
    def _stand_behind_a_proxy(self) -> Self:
        """Refuse an address that other machines reach without a proxy, unless the operator wants that."""
        if self.is_exposed and not self.without_proxy:
            raise ValueError(
                f"FARTHING_HOST={self.host} is reached from other machines. Put a proxy before the service and name "
                "its address in FARTHING_PROXY, or set FARTHING_WITHOUT_PROXY=true (docs/guides/operator/operate.md)."
            )
        return self

    @model_validator(mode="after")
    def _share_the_ledger(self) -> Self:
        """Refuse a site without a database that several machines can share."""
        if self.site and not (self.cluster and self.url.startswith("postgresql")):
            raise ValueError("FARTHING_SITE needs FARTHING_CLUSTER=true and a FARTHING_DATABASE_URL of PostgreSQL.")
        return self

    @model_validator(mode="after")
    def _send_mail_safely(self) -> Self:
        """Refuse mail without a sender, and a password that would be sent unencrypted."""
        if self.smtp_host and not self.mail_from:
            raise ValueError("FARTHING_SMTP_HOST needs FARTHING_MAIL_FROM, the sender of the mail.")
        if self.smtp_user and self.smtp_tls == "none":
            raise ValueError("FARTHING_SMTP_USER needs FARTHING_SMTP_TLS=starttls or tls.")
        return self

    @model_validator(mode="before")
    @classmethod
    def _put_passwords(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Put passwords from their own settings into the URLs, so that a URL need not be secret."""
        for name in ("database", "broker"):
            url, password = values.get(f"{name}_url"), values.get(f"{name}_password")
            if url and password:
                values[f"{name}_url"] = with_password(url, password)  # now, for the model is frozen once made
        return values

    @property
    def is_exposed(self) -> bool:
        """True where other machines reach the API with no proxy between."""
        try:
            local = ip_address(self.host).is_loopback
        except ValueError:
            local = self.host == "localhost"
        return not (local or self.proxy)

    @cached_property
    def url(self) -> str:
        """The database's SQLAlchemy URL; SQLite under `home` unless one is set."""
        return self.database_url or f"sqlite+pysqlite:///{(self.home / 'farthing.sqlite').absolute()}"

    @cached_property
    def records_path(self) -> Path:
        """The folder of encoded records, unless `storage_url` is set."""
        return self.home / "records"

    @cached_property
    def spool_path(self) -> Path:
        """The folder of encrypted uploads, for the seconds until they are decoded and stored."""
        return self.home / "spool"

    @cached_property
    def master_key_path(self) -> Path:
        """The file of the master key, where it is not in the environment."""
        return self.master_key_file or self.home / "master.key"

    @cached_property
    def signing_key_path(self) -> Path:
        """The file of the key that signs certificates, and of its former keys."""
        return self.signing_key_file or self.home / "signing.key"

    @cached_property
    def witness_path(self) -> Path | str:
        """The witness of ledger heads: a file, or s3://bucket/prefix."""
        return self.witness or self.home / "witness.jsonl"


def with_password(url: str, password: str) -> str:
    """Return a URL with a password; one that already names a password is returned as it is."""
    parts = urlsplit(url)
    if parts.password is not None or not parts.hostname:
        return url
    # Not `hostname`, which lacks the port and the brackets of an IPv6 address.
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username or ''}:{quote(password, safe='')}@{place}").geturl()
