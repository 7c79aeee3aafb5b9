// Sending a file with progress: for the pages of a new dataset and of a draft.
"use strict";

function sent(text) { document.getElementById("sent").textContent = text; }

// Send a file to a page of the service; the answer's status, text, and the page to go on with.
function sendFile(file, to, csrf) {
  const bar = document.getElementById("progress");
  const sending = new XMLHttpRequest();
  sending.open("POST", to);
  sending.setRequestHeader("X-CSRF-Token", csrf);
  sending.setRequestHeader("Content-Type", /\.csv$/i.test(file.name) ? "text/csv" : "application/octet-stream");
  bar.hidden = false;
  sending.upload.addEventListener("progress", (event) => {
    bar.value = Math.floor((100 * event.loaded) / event.total);
    sent(event.loaded < event.total ? `${bar.value} % sent` : "All of it is sent; its cells are read and encrypted now.");
  });
  return new Promise((resolve) => {
    sending.addEventListener("loadend", () => {
      bar.hidden = true;
      sent(sending.status ? "" : "The line broke. The declaration is kept; send the file again.");
      resolve({ status: sending.status, text: sending.responseText, location: sending.getResponseHeader("Location") });
    });
    sending.send(file);
  });
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
