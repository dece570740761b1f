// The fleet: rows as they change, and a filter.

import { follow } from "./live.js";
import { morph, parse, update } from "./morph.js";

const rows = document.getElementById("rows");
const filter = document.getElementById("filter");
const planning = document.getElementById("planning");
const elsewhere = document.getElementById("elsewhere");

function show(row) {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  row.hidden = !words.every((word) => row.dataset.search.includes(word));
}

function take({ rows: changed, gone, num_jobs: count }) {
  for (const job of gone) document.getElementById(`job-${job}`)?.remove();
  for (const [job, html] of Object.entries(changed)) {
    const now = parse(html).querySelector("tr");
    const old = document.getElementById(`job-${job}`);
    if (old === null) rows.insertBefore(now, [...rows.children].find((row) => row.id > now.id) ?? null);
    else update(old, now);
    show(old ?? now);
  }
  document.getElementById("count").textContent = count;
  document.getElementById("empty").hidden = count > 0;
}

function showAll() {
  document.querySelectorAll("tr[data-search]").forEach(show);
}

async function lookElsewhere() {
  if (document.hidden) return;
  const answer = await fetch("/elsewhere", { headers: { Accept: "text/html" } }).catch(() => null);
  if (!answer?.ok || answer.redirected) return;
  morph(elsewhere, parse(await answer.text()));
  showAll();
}

function takePlanning({ sentence }) {
  planning.textContent = sentence;
  planning.hidden = !sentence;
}

filter.addEventListener("input", showAll);
showAll();
if (elsewhere !== null) setInterval(lookElsewhere, 10_000);
follow("/events", { rows: take, planning: takePlanning });
