"""An SMTP server that keeps what it is given: the words of the protocol that the standard library's client says."""

import socketserver
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default

PATIENCE_SECONDS = 120.0


@dataclass
class Mail:
    """One mail that came, as its envelope and its text say."""

    sender: str
    recipients: list[str]
    message: EmailMessage
    encrypted: bool
    login: str


@dataclass
class Mailbox:
    """A mail server on this machine, what came, and the statuses by which it takes recipients and leaves."""

    port: int = 0
    mails: list[Mail] = field(default_factory=list)
    takes: int = 250
    farewell: int = 221

    def wait(self, count: int) -> list[Mail]:
        """Wait for a number of mails; return all that came."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.mails) < count:
            assert time.monotonic() < deadline, f"{len(self.mails)} of {count} mails came"
            time.sleep(0.05)
        return list(self.mails)


class Server(socketserver.ThreadingTCPServer):
    """The server of one mailbox."""

    daemon_threads = True

    def __init__(self, box: Mailbox, tls: ssl.SSLContext | None) -> None:
        """Listen at a free port."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.box, self.tls = box, tls


class Handler(socketserver.StreamRequestHandler):
    """One connection."""

    server: Server

    def handle(self) -> None:
        """Answer until the client leaves."""
        self.encrypted, self.login, self.sender = False, "", ""
        self.recipients = list[str]()
        self.say("220 box")
        try:
            while line := self.rfile.readline().decode().strip():
                verb = line.split()[0].split(":")[0].lower()
                getattr(self, f"on_{verb}", self.on_other)(line)
        except OSError:
            pass  # the client trusts nobody here, or has left
        finally:
            self.request.close()

    def say(self, text: str) -> None:
        """Send one line."""
        self.wfile.write(f"{text}\r\n".encode())

    def on_ehlo(self, line: str) -> None:
        """Say what is offered."""
        del line
        for offer in ("250-box", *(["250-STARTTLS"] if self.server.tls and not self.encrypted else [])):
            self.say(offer)
        self.say("250 AUTH PLAIN")

    def on_starttls(self, line: str) -> None:
        """Go on encrypted."""
        del line
        assert self.server.tls is not None
        self.say("220 go on")
        self.request = self.server.tls.wrap_socket(self.request, server_side=True, do_handshake_on_connect=False)
        self.request.do_handshake()
        self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", 0)
        self.encrypted = True

    def on_quit(self, line: str) -> None:
        """Say goodbye; the client leaves."""
        del line
        self.say(f"{self.server.box.farewell} bye")

    def on_auth(self, line: str) -> None:
        """Take any login."""
        self.login = line.rsplit(maxsplit=1)[-1]
        self.say("235 welcome")

    def on_mail(self, line: str) -> None:
        """Begin a mail."""
        self.sender, self.recipients = _address(line), []
        self.say("250 ok")

    def on_rcpt(self, line: str) -> None:
        """Take a recipient, or not."""
        self.recipients.append(_address(line))
        self.say(f"{self.server.box.takes} it is so")

    def on_data(self, line: str) -> None:
        """Take the text."""
        del line
        self.say("354 go on")
        lines = []
        while (part := self.rfile.readline()) != b".\r\n":
            lines.append(part.removeprefix(b".") if part.startswith(b"..") else part)
        found = message_from_bytes(b"".join(lines), policy=default)
        assert isinstance(found, EmailMessage)
        self.server.box.mails.append(Mail(self.sender, self.recipients, found, self.encrypted, self.login))
        self.say("250 kept")

    def on_other(self, line: str) -> None:
        """Agree to anything else."""
        del line
        self.say("250 ok")


def noticing(box: Mailbox) -> dict[str, str]:
    """Return the environment of a service that mails to this box, and posts to this machine."""
    return {
        "FARTHING_WEBHOOK_HTTP": "true",
        "FARTHING_WEBHOOK_NETWORKS": "127.0.0.0/8",
        "FARTHING_NOTICE_SECONDS": "0.2",
        "FARTHING_SMTP_HOST": "127.0.0.1",
        "FARTHING_SMTP_PORT": str(box.port),
        "FARTHING_SMTP_TLS": "none",
        "FARTHING_MAIL_FROM": "farthing@data.example",
    }


def _address(line: str) -> str:
    return line.partition("<")[2].partition(">")[0]


@contextmanager
def mailbox(tls: ssl.SSLContext | None = None) -> Iterator[Mailbox]:
    """Run a mail server until the end of the block; with a context it offers STARTTLS."""
    box = Mailbox()
    server = Server(box, tls)
    box.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield box
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
