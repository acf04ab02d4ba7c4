/** Small parts that all pages are made of. */
import { cloneElement, isValidElement, toChildArray, type ComponentChildren } from "preact";
import type { Problem } from "../api";

/** What went wrong, and what to do about it. */
export function Failure({ problem }: { problem: Problem | undefined }) {
  if (!problem) return null;
  return (
    <p role="alert" class="failure">
      {problem.message}
      {problem.hint && <small>{problem.hint}</small>}
    </p>
  );
}

/** A moment, as people of this place write it; the exact one on hovering. */
export function Time({ at }: { at: number | null | undefined }) {
  if (!at) return <span>never</span>;
  const moment = new Date(at * 1000);
  const today = moment.toDateString() === new Date().toDateString();
  return (
    <time dateTime={moment.toISOString()} title={moment.toISOString()}>
      {today ? moment.toLocaleTimeString() : moment.toLocaleString()}
    </time>
  );
}

/** How long, in the largest two units. */
export function span(seconds: number): string {
  const units: [number, string][] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  for (const [index, [size, unit]] of units.entries()) {
    if (seconds < size) continue;
    const [smaller, name] = units[index + 1] ?? [0, ""];
    const rest = smaller ? Math.floor((seconds % size) / smaller) : 0;
    return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${name}` : ""}`;
  }
  return "0 s";
}

/** Watts in words. */
export function watts(value: number | null | undefined): string {
  if (value === null || value === undefined) return "unknown";
  if (value >= 1e6) return `${(value / 1e6).toFixed(2)}\u00a0MW`;
  return value >= 1e4 ? `${(value / 1e3).toFixed(1)}\u00a0kW` : `${Math.round(value)}\u00a0W`;
}

const TONES: Record<string, string> = {
  done: "good",
  running: "busy",
  aborting: "busy",
  "rolling-back": "busy",
  pending: "busy",
  failed: "bad",
  stopped: "bad",
  "rolled-back": "bad",
  lost: "bad",
  critical: "bad",
  warning: "careful",
  paused: "careful",
};

/** How something is, in a word and in the colour that it has everywhere. */
export function Badge({ word, testid }: { word: string; testid?: string }) {
  return (
    <span class={`badge ${TONES[word.toLowerCase()] ?? "plain"}-badge`} data-testid={testid}>
      {word}
    </span>
  );
}

/** More columns than a phone shows beside one another: there, each row is a card. */
const WIDE = 5;

/** The cells of a row with the head of their column, for where they stand below one another. */
function labelled(row: ComponentChildren, head: string[]): ComponentChildren {
  if (!isValidElement(row)) return row;
  const cells = toChildArray((row.props as { children?: ComponentChildren }).children);
  return cloneElement(row, {}, ...cells.map((cell, place) => (isValidElement(cell) ? cloneElement(cell, { "data-head": head[place] }) : cell)));
}

/** A table that scrolls by itself where the page is narrow. */
export function Table({ head, children, label }: { head: string[]; children: ComponentChildren; label: string }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table class={head.length >= WIDE ? "cards" : ""}>
        <thead>
          <tr>
            {head.map((title) => (
              <th scope="col" key={title}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{toChildArray(children).map((row) => labelled(row, head))}</tbody>
      </table>
    </div>
  );
}

/** A part of something, as a bar with its numbers beside it. */
export function Share({ value, of, label }: { value: number; of: number; label: string }) {
  return (
    <span class="share">
      <progress value={value} max={Math.max(of, 1)} aria-label={label} /> {value} of {of}
    </span>
  );
}
