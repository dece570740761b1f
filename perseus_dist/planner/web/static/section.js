// A page of one section, which names its stream of events: HTML as it changes.

import { follow } from "./live.js";
import { morph, parse } from "./morph.js";

const section = document.querySelector("[data-events]");

follow(section.dataset.events, {
  sections: ({ sections }) => morph(section, parse(sections[section.id])),
});
