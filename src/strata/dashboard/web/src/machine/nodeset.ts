/** Folded nodesets as the service writes them (`n[001-512,600],login1`), unfolded. */

/** Each name, one after the other. */
export function* unfold(text: string): Generator<string> {
  for (const part of split(text)) yield* expand(part);
}

/** At commas that are not inside brackets. */
function split(text: string): string[] {
  return text.match(/(?:\[[^\]]*\]|[^,[])+/g) ?? [];
}

function* expand(part: string): Generator<string> {
  const found = /^([^[]*)\[([^\]]*)\](.*)$/.exec(part);
  if (!found) {
    if (part) yield part;
    return;
  }
  const [, head = "", ranges = "", tail = ""] = found;
  for (const range of ranges.split(",")) {
    const [bounds = "", step = "1"] = range.split("/");
    const [first = "", last = first] = bounds.split("-");
    for (let number = Number(first); number <= Number(last); number += Number(step) || 1)
      for (const rest of tail ? expand(tail) : [""]) yield head + String(number).padStart(first.length, "0") + rest;
  }
}
