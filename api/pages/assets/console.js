// What pages do beyond links, forms and htmx: copy, one-time links, and forms that survive a reload or a sign-in.
"use strict";

function toast(text) {
  const list = document.querySelector(".toasts") || document.body.appendChild(document.createElement("div"));
  list.className = "toasts";
  const shown = document.createElement("div");
  shown.className = "toast";
  shown.setAttribute("role", "status");
  const said = document.createElement("p");
  said.textContent = text;
  shown.append(said);
  list.append(shown);
  setTimeout(() => shown.remove(), 6000);
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    toast("Copied.");
  } catch {
    toast("This browser does not let pages copy; mark the text and copy it.");
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.querySelectorAll(".toast").forEach((one) => one.remove());
});

// A one-time link stands behind the # of the address, which browsers send to nobody.
const linked = document.getElementById("by-link");
if (linked && location.hash.startsWith("#link=")) {
  linked.elements.link.value = location.hash.slice("#link=".length);
  linked.hidden = false;
  history.replaceState(null, "", location.pathname + location.search);
}

const invited = document.getElementById("by-invitation");
if (invited && location.hash.startsWith("#invitation=")) {
  invited.elements.invitation.value = location.hash.slice("#invitation=".length);
  history.replaceState(null, "", location.pathname + location.search);
}

// A file that is read here, into a field of its form.
document.addEventListener("change", async (event) => {
  const into = event.target.closest("input[type=file][data-into]");
  const file = into?.files[0];
  if (!file) return;
  if (file.size > 3_000_000) toast("This file has more than 3 MB. Send its rows in parts, or by the API.");
  else document.getElementById(into.dataset.into).value = await file.text();
});

// Forms marked data-keep: what is typed is kept in this tab until the form is sent, never a key or a file.
// Another person who signs in to the same tab finds nothing of it.
const who = document.body.dataset.who || "";
Object.keys(sessionStorage).filter((place) => who && place.startsWith("form ") && !place.startsWith(`form ${who} `)).forEach((place) => sessionStorage.removeItem(place));
document.querySelectorAll("form[data-keep]").forEach((form) => {
  const place = `form ${who} ${location.pathname} ${form.dataset.keep}`;
  const kept = Array.from(form.elements).filter((field) => field.name && !["hidden", "password", "file"].includes(field.type));
  const before = JSON.parse(sessionStorage.getItem(place) || "null");
  if (before && !form.querySelector("[aria-invalid]")) {
    kept.forEach((field, number) => {
      if (before[number] === undefined) return;
      if (field.type === "checkbox" || field.type === "radio") field.checked = before[number];
      else field.value = before[number];
    });
  }
  form.addEventListener("input", () => {
    const now = kept.map((field) => (field.type === "checkbox" || field.type === "radio" ? field.checked : field.value));
    sessionStorage.setItem(place, JSON.stringify(now));
  });
});
document.querySelectorAll("[data-done]").forEach((mark) => {
  Object.keys(sessionStorage).filter((place) => place.endsWith(` ${mark.dataset.done}`)).forEach((place) => sessionStorage.removeItem(place));
});
