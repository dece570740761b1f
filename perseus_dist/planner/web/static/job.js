// One job: sections as they change, the heat map's quantity, and the target's slider.

import { follow } from "./live.js";
import { morph, parse } from "./morph.js";
import { targetForm } from "./target.js";

const job = document.getElementById("job").dataset.job;
const heat = document.getElementById("heat");
const form = targetForm(document.getElementById("target"));

document.getElementById("quantity").addEventListener("change", (event) => {
  heat.dataset.quantity = event.target.value;
});
heat.dataset.quantity = document.querySelector("#quantity input:checked")?.value ?? "plan";

follow(`/jobs/${encodeURIComponent(job)}/events`, {
  sections: ({ sections }) => {
    for (const [name, html] of Object.entries(sections)) morph(document.getElementById(name), parse(html));
    if ("frontier" in sections || "figures" in sections) form.frontierChanged();
  },
});
