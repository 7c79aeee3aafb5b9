// The page of a new dataset: names and types of columns are read in the browser, and no value leaves it before the upload.
"use strict";

const form = document.getElementById("new-dataset");
const columns = document.getElementById("columns");
const problems = document.getElementById("problems");
const file = document.getElementById("file");
const words = document.getElementById("file-words");
const LINES = 200;
const HEAD_BYTES = 262144;
const IDENTIFIER = /(^|[_ .-])(id|ids|uuid|nr|no|number|name|names|surname|email|mail|phone|ssn|iban|passport)$/i;
const PLACE = /(postcode|zip|zipcode|address|street|latitude|longitude)$/i;

// One line of CSV: quoted cells may hold commas and doubled quotes.
function cells(line) {
  const found = [];
  let cell = "", quoted = false;
  for (let at = 0; at < line.length; at += 1) {
    const letter = line[at];
    if (quoted && letter === '"' && line[at + 1] === '"') { cell += '"'; at += 1; }
    else if (letter === '"') quoted = !quoted;
    else if (letter === "," && !quoted) { found.push(cell); cell = ""; }
    else cell += letter;
  }
  return [...found, cell].map((one) => one.trim());
}

// A type by the form of the cells alone: which values there are is never looked at.
function typeOf(shown) {
  const given = shown.filter((one) => one !== "" && one !== "NA");
  if (!given.length) return "category";
  if (given.every((one) => /^[+-]?\d+$/.test(one))) return "integer";
  if (given.every((one) => /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(one))) return "number";
  if (given.every((one) => /^\d{4}-\d{2}-\d{2}$/.test(one))) return "date";
  return "category";
}

function suit(row) {
  const type = row.querySelector("[data-what=type]").value;
  const isCoded = type === "category" || type === "binary";
  for (const what of ["lower", "upper"]) row.querySelector(`[data-what=${what}]`).hidden = isCoded;
  row.querySelector("[data-what=values]").hidden = !isCoded;
  row.querySelector("[data-what=other]").hidden = type !== "category";
}

function addRow(column, note) {
  const place = columns.children.length;
  const row = document.getElementById("row").content.firstElementChild.cloneNode(true);
  const head = row.querySelector("th");
  if (column.name === undefined) {
    const input = document.createElement("input");
    input.className = "input dense";
    input.dataset.what = "name";
    input.setAttribute("aria-label", `Name of column ${place + 1}`);
    input.id = `c${place}-name`;
    head.append(input);
  } else {
    const named = document.createElement("bdi");
    named.className = "name";
    named.textContent = column.name;
    head.append(named);
    row.dataset.name = column.name;
  }
  if (note) {
    const said = document.createElement("span");
    said.className = "flag note";
    said.textContent = note;
    head.append(said);
  }
  const called = column.name === undefined ? `column ${place + 1}` : column.name;
  const labels = { use: "Use", type: "Type of", lower: "Lowest", upper: "Highest", values: "Values of", other: "What unknown values become in", missing: "Missing codes of" };
  row.querySelectorAll("[data-what]").forEach((field) => {
    const what = field.dataset.what;
    if (what === "name") return;
    field.setAttribute("aria-label", `${labels[what]} ${called}`);
    field.id = `c${place}-${what}`;
    const given = column[what];
    if (what === "use") field.checked = !note;
    else if (given !== undefined && given !== null) field.value = Array.isArray(given) ? given.join(", ") : given;
  });
  row.querySelector("[data-what=type]").addEventListener("change", () => suit(row));
  suit(row);
  columns.append(row);
}

async function read(chosen) {
  const size = chosen.size < 1e6 ? `${Math.ceil(chosen.size / 1000)} kB` : `${(chosen.size / 1e6).toFixed(1)} MB`;
  words.textContent = `${chosen.name}, ${size}. No value was kept, shown or sent.`;
  document.getElementById("send").textContent = `Upload ${size}`;
  const title = document.getElementById("name");
  if (!title.value) title.value = chosen.name.replace(/\.[^.]*$/, "");
  if (!/\.csv$/i.test(chosen.name)) {
    words.textContent += " Names are read from CSV files; load a declaration for another kind.";
    return;
  }
  const lines = (await chosen.slice(0, HEAD_BYTES).text()).replace(/^\ufeff/, "").split(/\r?\n/).slice(0, LINES + 1);
  if (lines.length > 1 && chosen.size > HEAD_BYTES) lines.pop();
  const names = cells(lines[0]);
  const body = lines.slice(1).filter((line) => line !== "").map(cells);
  columns.replaceChildren();
  names.forEach((named, place) => {
    let note = "";
    if (IDENTIFIER.test(named)) note = "its name looks like an identifier: left out";
    else if (PLACE.test(named)) note = "its name looks like a place of few people: left out";
    addRow({ name: named, type: typeOf(body.map((one) => one[place] ?? "")) }, note);
  });
}

function figure(text) {
  const cleaned = text.replace(/,/g, "").replace("\u2212", "-").trim();
  return cleaned !== "" && Number.isFinite(Number(cleaned)) ? Number(cleaned) : text.trim();
}

function list(text) {
  return text.split(",").map((one) => one.trim()).filter((one) => one !== "");
}

function columnOf(row) {
  const value = (what) => row.querySelector(`[data-what=${what}]`)?.value ?? "";
  const type = value("type");
  const made = { type, name: row.dataset.name ?? value("name").trim() };
  const isCoded = type === "category" || type === "binary";
  if (isCoded) {
    made.values = list(value("values"));
    if (type === "category" && value("other").trim()) made.other = value("other").trim();
  } else {
    for (const what of ["lower", "upper"]) if (value(what).trim()) made[what] = type === "date" ? value(what).trim() : figure(value(what));
  }
  const codes = list(value("missing"));
  if (codes.length) made.missing = isCoded || type === "date" ? codes : codes.map(figure);
  return made;
}

function used() {
  return Array.from(columns.children).filter((row) => row.querySelector("[data-what=use]").checked);
}

function metadata() {
  const data = new FormData(form);
  const made = { name: data.get("name").trim(), columns: used().map(columnOf), approval: data.has("approval") };
  if (data.get("scope").trim()) made.scope = data.get("scope").trim();
  else {
    made.adjacency = data.get("adjacency");
    made.budget = { epsilon: data.get("epsilon").trim(), delta: data.get("delta").trim() };
  }
  if (data.get("distinct").trim()) made.distinct_because = data.get("distinct").trim();
  return made;
}

function show(text) {
  problems.innerHTML = text; // the service's own page, whose texts are escaped
  form.querySelectorAll("[aria-invalid]").forEach((field) => field.removeAttribute("aria-invalid"));
  const rows = used();
  problems.querySelectorAll("a").forEach((link) => {
    const named = link.getAttribute("href").slice(1);
    const [, place, what] = /^c(\d+)-(\w+)$/.exec(named) ?? [];
    const field = place === undefined ? document.getElementById(named) : rows[Number(place)]?.querySelector(`[data-what=${what}]`);
    if (!field) return;
    link.setAttribute("href", `#${field.id}`);
    field.setAttribute("aria-invalid", "true");
  });
  problems.focus();
}

async function check() {
  const body = new URLSearchParams({ csrf: form.dataset.csrf, metadata: JSON.stringify(metadata()) });
  const answer = await fetch("/datasets/new/check", { method: "POST", body, redirect: "manual" });
  if (answer.type === "opaqueredirect") { location.assign("/sign-in?next=/datasets/new&ended=1"); return false; }
  show(await answer.text());
  return answer.ok;
}

function send() {
  const sending = new XMLHttpRequest();
  const bar = document.getElementById("progress");
  const sent = document.getElementById("sent");
  const button = document.getElementById("send");
  const data = new FormData();
  data.append("metadata", new Blob([JSON.stringify(metadata())], { type: "application/json" }));
  data.append("file", file.files[0]);
  sending.open("POST", "/datasets/new");
  sending.setRequestHeader("X-CSRF-Token", form.dataset.csrf);
  bar.hidden = false;
  button.disabled = true;
  sending.upload.addEventListener("progress", (event) => {
    bar.value = Math.floor((100 * event.loaded) / event.total);
    sent.textContent = event.loaded < event.total ? `${bar.value} % sent` : "All of it is sent; its cells are read and encrypted now.";
  });
  sending.addEventListener("load", () => {
    if (sending.status === 201) {
      sessionStorage.removeItem(`form ${document.body.dataset.who} /datasets/new dataset`);
      location.assign(sending.getResponseHeader("Location"));
      return;
    }
    bar.hidden = true;
    button.disabled = false;
    sent.textContent = "";
    show(sending.responseText);
  });
  sending.addEventListener("error", () => {
    bar.hidden = true;
    button.disabled = false;
    sent.textContent = "The line broke. Nothing was made; send it again.";
  });
  sending.send(data);
}

file.addEventListener("change", () => file.files[0] && read(file.files[0]));
document.getElementById("add").addEventListener("click", () => addRow({}, ""));
document.getElementById("check").addEventListener("click", check);
document.getElementById("load").addEventListener("click", () => {
  let given;
  try {
    given = JSON.parse(document.getElementById("declaration").value);
  } catch {
    toast("This is not JSON.");
    return;
  }
  const declared = Array.isArray(given) ? given : given.columns ?? [];
  columns.replaceChildren();
  declared.forEach((column) => addRow(column, ""));
  if (given.name) document.getElementById("name").value = given.name;
  toast(`${declared.length} columns are filled in.`);
});
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!file.files[0]) { toast("Choose a file first."); file.focus(); return; }
  if (await check()) send();
});

const drop = document.getElementById("drop");
for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  file.files = event.dataTransfer.files;
  if (file.files[0]) read(file.files[0]);
});
