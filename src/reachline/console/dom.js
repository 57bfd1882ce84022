// Build and change elements without a framework. Text goes in as text nodes only: nothing here parses HTML.

/**
 * An element with attributes and children. `class` and `data-…` as in HTML; a child may be a node, text, or null.
 * @param {string} tag
 * @param {Record<string, string | number | boolean | null>} [attributes]
 * @param {...(Node | string | null)} children
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Set text, only when it differs: an unchanged node costs no layout. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Set an attribute, only when it differs; null removes it. */
export function mark(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Replace all children at once. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child !== null));
}
