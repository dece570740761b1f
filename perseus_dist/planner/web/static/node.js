// One node: its GPUs and findings as they change.

import { follow } from "./live.js";
import { morph, parse } from "./morph.js";

const node = document.getElementById("node");

follow(`/node/events?host=${encodeURIComponent(node.dataset.host)}`, {
  sections: ({ sections }) => morph(node, parse(sections.node)),
});
