// Sending a file with progress: for the pages of a new dataset and of a draft.
"use strict";

function sent(text) { document.getElementById("sent").textContent = text; }

const IN_PARTS_BYTES = 16 * 2 ** 20;
const PART_SENDS = 8;

function typeOfFile(file) { return /\.csv$/i.test(file.name) ? "text/csv" : "application/octet-stream"; }

// Send bytes to a page; the answer's status, text, and the page to go on with. Status 0: the line broke.
function post(to, body, headers, progress) {
  const sending = new XMLHttpRequest();
  sending.open("POST", to);
  Object.entries(headers).forEach(([name, value]) => sending.setRequestHeader(name, value));
  sending.upload.addEventListener("progress", (event) => progress(event.loaded));
  return new Promise((resolve) => {
    sending.addEventListener("loadend", () => resolve({ status: sending.status, text: sending.responseText, location: sending.getResponseHeader("Location") }));
    sending.send(body);
  });
}

async function digestOf(part) {
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", await part.arrayBuffer()));
  return `sha-256=:${btoa(String.fromCharCode(...bytes))}:`;
}

// The upload of this size that is open, with the parts that are there, or a new one.
async function uploadFor(file, base, csrf) {
  const open = await (await fetch(base)).json();
  const found = open.find((one) => one.bytes === file.size && one.media_type === typeOfFile(file));
  if (found) return (await fetch(`${base}/${found.id}`)).json();
  const body = new URLSearchParams({ csrf, bytes: file.size, media_type: typeOfFile(file) });
  const answer = await fetch(base, { method: "POST", body });
  return answer.ok ? { ...(await answer.json()), parts: [] } : { refused: { status: answer.status, text: await answer.text(), location: null } };
}

// Send a large file in parts. A part that is there already is not sent; one that the line broke is sent again.
async function sendParts(file, base, csrf, shown) {
  const upload = await uploadFor(file, base, csrf);
  if (upload.refused) return upload.refused;
  const there = new Map(upload.parts.map((one) => [one.number, one.digest]));
  for (let number = 1; number <= upload.part_count; number += 1) {
    const from = (number - 1) * upload.part_bytes;
    const part = file.slice(from, from + upload.part_bytes);
    const digest = await digestOf(part);
    if (there.get(number) === digest) { shown(from + part.size); continue; }
    for (let turn = 1; ; turn += 1) {
      const headers = { "X-CSRF-Token": csrf, "Content-Digest": digest, "Content-Type": "application/octet-stream" };
      const answer = await post(`${base}/${upload.id}/parts/${number}`, part, headers, (loaded) => shown(from + loaded));
      if (answer.status === 200) break;
      if ((answer.status && answer.status < 500 && answer.status !== 429) || turn === PART_SENDS) return answer;
      sent("The line broke. It goes on where it was.");
      await new Promise((resolve) => setTimeout(resolve, Math.min(500 * 2 ** turn, 10000)));
    }
  }
  return post(`${base}/${upload.id}/complete`, new URLSearchParams({ csrf }), {}, () => {});
}

// Send a file for a dataset or draft; the answer's status, text, and the page to go on with.
async function sendFile(file, to, csrf) {
  const bar = document.getElementById("progress");
  const shown = (bytes) => {
    bar.value = Math.floor((100 * bytes) / file.size);
    sent(bytes < file.size ? `${bar.value} % sent` : "All of it is sent; its cells are read and encrypted now.");
  };
  bar.hidden = false;
  const whole = { "X-CSRF-Token": csrf, "Content-Type": typeOfFile(file) };
  let answer = { status: 0, text: "", location: null };
  try {
    const inParts = file.size > IN_PARTS_BYTES && globalThis.crypto?.subtle;
    answer = inParts ? await sendParts(file, to.replace(/content$/, "uploads"), csrf, shown) : await post(to, file, whole, shown);
  } catch (error) {
    if (!(error instanceof TypeError) && !(error instanceof SyntaxError)) throw error; // fetch: no answer, or a page in its place
  }
  bar.hidden = true;
  sent(answer.status ? "" : "The line broke. What has arrived is kept for a day; send the same file again to go on.");
  return answer;
}

function showProblems(text) {
  const problems = document.getElementById("problems");
  problems.innerHTML = text; // the service's own page, whose texts are escaped
  problems.focus();
  return problems;
}

document.getElementById("send-file")?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const button = form.querySelector("button");
  button.disabled = true;
  const answer = await sendFile(document.getElementById("file").files[0], form.dataset.to, form.dataset.csrf);
  button.disabled = false;
  if (answer.status === 200 && answer.location) location.assign(answer.location);
  else if (answer.status === 200) location.assign(`/sign-in?next=${location.pathname}&ended=1`); // the sign-in page, followed
  else if (answer.status) showProblems(answer.text);
});
