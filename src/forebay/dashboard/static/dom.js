// Making and changing elements: text is always text, and what has not changed is not touched.

/** Make an element with attributes and children; a child that is a string becomes text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Set the text of an element, if it differs. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set or remove (null) an attribute, if it differs. */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/**
 * Keep one child of `parent` for each item, in that order. Children stay the same elements while
 * their item's key stays, so that focus and selection survive; `create` makes one, `update` fills it.
 */
export function keepChildren(parent, items, { key, create, update }) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = known.get(name);
    known.delete(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update(child, item);
  }
  for (const child of known.values()) child.remove();
}
