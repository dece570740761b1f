// Make an element look like new HTML and change nothing else: focus, selection and scrolling stay where they are.

export function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

export function morph(element, content) {
  const wanted = [...content.childNodes];
  const byId = new Map();
  for (const child of element.children) if (child.id) byId.set(child.id, child);
  const kept = new Set(wanted.map((node) => node.id));
  for (const [id, child] of byId) if (!kept.has(id)) child.remove();
  let at = element.firstChild;
  for (const node of wanted) {
    const same = node.id ? byId.get(node.id) : undefined;
    if (same !== undefined) {
      while (at !== null && at !== same && !at.id) at = next(at); // an element that is moved loses its focus
      if (same === at) at = at.nextSibling;
      else element.insertBefore(same, at);
      update(same, node);
    } else if (at !== null && !(at.id && at.id !== node.id) && at.nodeType === node.nodeType && at.nodeName === node.nodeName) {
      const old = at;
      at = at.nextSibling;
      update(old, node);
    } else {
      element.insertBefore(node, at);
    }
  }
  while (at !== null) at = next(at);
}

// The sibling behind a node, which is removed.
function next(node) {
  const behind = node.nextSibling;
  node.remove();
  return behind;
}

export function update(old, now) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== now.nodeValue) old.nodeValue = now.nodeValue;
    return;
  }
  const kept = old.nodeName === "DETAILS" ? "open" : ""; // who reads it has opened it
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name) && name !== kept) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  morph(old, now);
}
