// The page of a declaration, new or a draft's: names and types of columns are read in the browser; no value is sent for them.
"use strict";

const form = document.getElementById("new-dataset");
const columns = document.getElementById("columns");
const file = document.getElementById("file");
const sniff = document.getElementById("sniff");
const words = document.getElementById("file-words");
const FIELDS = ["name", "type", "lower", "upper", "values", "other", "missing"];
const SEPARATORS = [",", ";", "\t", "|"];
const LINES = 200;
const HEAD_BYTES = 262144;
const IDENTIFIER = /(^|[_ .-])(id|ids|uuid|nr|no|number|name|names|surname|email|mail|phone|ssn|iban|passport)$/i;
const PLACE = /(postcode|zip|zipcode|address|street|latitude|longitude)$/i;

// One line of CSV: quoted cells may hold separators and doubled quotes.
function cells(line, separator) {
  const found = [];
  let cell = "", quoted = false;
  for (let at = 0; at < line.length; at += 1) {
    const letter = line[at];
    if (quoted && letter === '"' && line[at + 1] === '"') { cell += '"'; at += 1; }
    else if (letter === '"') quoted = !quoted;
    else if (letter === separator && !quoted) { found.push(cell); cell = ""; }
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

// The same of cells that are not written as in JSON and ISO 8601: then the service has to find their form.
function looseTypeOf(shown) {
  const given = shown.filter((one) => one !== "" && one !== "NA");
  if (!given.length) return "category";
  if (given.every((one) => /^[+-]?\d+([.,' \u00a0\u202f]\d{3})*([.,]\d+)?$/.test(one))) return "number";
  if (given.every((one) => /^(\d{4}-\d{2}-\d{2}|\d{1,2}([./-])\d{1,2}\2\d{4})$/.test(one))) return "date";
  return "category";
}

// The first bytes as text: most files are UTF-8, and old ones of Windows are not.
async function textOf(chosen) {
  const bytes = await chosen.slice(0, HEAD_BYTES).arrayBuffer();
  const [first, second] = new Uint8Array(bytes);
  if (first === 0xff && second === 0xfe) return [new TextDecoder("utf-16le").decode(bytes), false];
  if (first === 0xfe && second === 0xff) return [new TextDecoder("utf-16be").decode(bytes), false];
  try {
    return [new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true }), true]; // the last letter may be cut
  } catch {
    return [new TextDecoder("windows-1252").decode(bytes), false];
  }
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
  row.beyond = Object.fromEntries(Object.entries(column).filter(([what]) => !FIELDS.includes(what)));
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
  let [text, plain] = await textOf(chosen);
  const lines = text.replace(/^\ufeff/, "").split(/\r?\n/).slice(0, LINES + 1);
  if (lines.length > 1 && chosen.size > HEAD_BYTES) lines.pop();
  const separator = SEPARATORS.reduce((best, one) => (cells(lines[0], one).length > cells(lines[0], best).length ? one : best));
  const names = cells(lines[0], separator);
  const body = lines.slice(1).filter((line) => line !== "").map((line) => cells(line, separator));
  plain &&= separator === ",";
  columns.replaceChildren();
  names.forEach((named, place) => {
    let note = "";
    if (IDENTIFIER.test(named)) note = "its name looks like an identifier: left out";
    else if (PLACE.test(named)) note = "its name looks like a place of few people: left out";
    const shown = body.map((one) => one[place] ?? "");
    const strict = typeOf(shown), type = strict === "category" ? looseTypeOf(shown) : strict;
    plain &&= type === strict;
    addRow({ name: named, type }, note);
  });
  sniff.checked = !plain;
  if (!plain) words.textContent += " It is not written as plain CSV: the draft will say how it was read.";
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
  const made = { ...row.beyond, type, name: row.dataset.name ?? value("name").trim() };
  const isCoded = type === "category" || type === "binary";
  if (isCoded) {
    const values = list(value("values"));
    if (values.length) made.values = values;
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

// What was declared before and has no field here stays as it is.
let before = {};

function metadata() {
  const data = new FormData(form);
  const { scope, accept_delta, adjacency, budget, distinct_because, seal, accept_excluded, ...rest } = before;
  const made = { ...rest, name: data.get("name").trim(), columns: used().map(columnOf), approval: data.has("approval") };
  if (sniff.checked) made.reading = "sniff";
  else if (made.reading === "sniff") delete made.reading;
  if (data.get("scope").trim()) {
    made.scope = data.get("scope").trim();
    if (accept_delta) made.accept_delta = accept_delta;
  } else {
    made.adjacency = data.get("adjacency");
    made.budget = { ...budget, epsilon: data.get("epsilon").trim(), delta: data.get("delta").trim() };
    if (!made.budget.delta) delete made.budget.delta;
  }
  if (data.get("distinct").trim()) made.distinct_because = data.get("distinct").trim();
  return made;
}

function show(text) {
  form.querySelectorAll("[aria-invalid]").forEach((field) => field.removeAttribute("aria-invalid"));
  const rows = used();
  showProblems(text).querySelectorAll("a").forEach((link) => {
    const named = link.getAttribute("href").slice(1);
    const [, place, what] = /^c(\d+)-(\w+)$/.exec(named) ?? [];
    const field = place === undefined ? document.getElementById(named) : rows[Number(place)]?.querySelector(`[data-what=${what}]`);
    if (!field) return;
    link.setAttribute("href", `#${field.id}`);
    field.setAttribute("aria-invalid", "true");
  });
}

// Send the declaration to a page; null where the session has ended.
async function declare(to) {
  const body = new URLSearchParams({ csrf: form.dataset.csrf, metadata: JSON.stringify(metadata()) });
  const answer = await fetch(to, { method: "POST", body, redirect: "manual" });
  if (answer.type === "opaqueredirect") { location.assign(`/sign-in?next=${location.pathname}&ended=1`); return null; }
  if (!answer.ok || to.endsWith("/check")) show(await answer.text());
  return answer;
}

// Make or mend the draft, then send its file; without a new file the draft has the one that it had.
async function keep() {
  const draft = form.dataset.draft;
  const answer = await declare(draft ? `/datasets/${draft}/mend` : "/datasets/new");
  if (!answer?.ok) return;
  const next = answer.headers.get("Location");
  if (!draft) {
    sessionStorage.removeItem(`form ${document.body.dataset.who} /datasets/new dataset`);
    form.dataset.draft = next.split("/")[2];
    history.replaceState(null, "", `/datasets/${form.dataset.draft}/mend`);
  }
  if (file.files[0]) {
    const taken = await sendFile(file.files[0], next.replace(/draft$/, "content"), form.dataset.csrf);
    if (taken.status !== 200) {
      if (taken.status) show(taken.text);
      return;
    }
  }
  location.assign(next);
}

function fill(given) {
  const declared = Array.isArray(given) ? given : given.columns ?? [];
  columns.replaceChildren();
  declared.forEach((column) => addRow(column, ""));
  if (Array.isArray(given)) return declared.length;
  before = given;
  const put = (id, value) => { if (value !== undefined && value !== null) document.getElementById(id).value = value; };
  put("name", given.name);
  put("epsilon", given.budget?.epsilon);
  if (given.budget) document.getElementById("delta").value = given.budget.delta ?? "";
  put("scope", given.scope);
  put("distinct", given.distinct_because);
  sniff.checked = given.reading === "sniff";
  form.elements.approval.checked = given.approval ?? false; // as the API takes it
  if (given.adjacency) form.elements.adjacency.value = given.adjacency;
  form.querySelectorAll("details").forEach((one) => { one.open = one.open || Array.from(one.querySelectorAll("input")).some((field) => field.value); });
  return declared.length;
}

file.addEventListener("change", () => file.files[0] && read(file.files[0]));
document.getElementById("add").addEventListener("click", () => addRow({}, ""));
document.getElementById("check").addEventListener("click", () => declare("/datasets/new/check"));
document.getElementById("load").addEventListener("click", () => {
  try {
    toast(`${fill(JSON.parse(document.getElementById("declaration").value))} columns are filled in.`);
  } catch {
    toast("This is not a declaration in JSON.");
  }
});
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!file.files[0] && !form.dataset.draft) { toast("Choose a file first."); file.focus(); return; }
  const button = document.getElementById("send");
  button.disabled = true;
  await keep();
  button.disabled = false;
});
if (form.dataset.declared) fill(JSON.parse(form.dataset.declared));

const drop = document.getElementById("drop");
for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  file.files = event.dataTransfer.files;
  if (file.files[0]) read(file.files[0]);
});
