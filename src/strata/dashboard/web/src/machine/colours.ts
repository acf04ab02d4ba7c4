/** What each value looks like: a colour that is told apart with any eyes (after Okabe and Ito), and a letter. */

/** Words that mean the same everywhere look the same everywhere. */
const KNOWN: Record<string, string> = {
  ready: "#009e73",
  on: "#009e73",
  up: "#009e73",
  ok: "#009e73",
  wanted: "#009e73",
  running: "#009e73",
  idle: "#009e73",
  converging: "#56b4e9",
  waiting: "#0072b2",
  held: "#cc79a7",
  frozen: "#8c7fd9",
  faulted: "#d55e00",
  failing: "#d55e00",
  failed: "#d55e00",
  down: "#d55e00",
  unreachable: "#e69f00",
  off: "#4d5a66",
  absent: "#76828c",
  unmanaged: "#98a2ab",
  unknown: "#c9bd5a",
  "": "#76828c",
};
const OTHERS = ["#0072b2", "#e69f00", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c7fd9", "#3c9d9b", "#a6761d", "#666699"];

/** From little to much: after viridis, which gets steadily lighter. */
const RAMP = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#d8e219", "#fde725"];
const STEP = /^(-?[\d.]+)–/;

export interface Look {
  colour: string;
  letter: string;
  /** Black or white, whichever is read better on the colour. */
  ink: string;
}

function ink(colour: string): string {
  const part = (from: number): number => (parseInt(colour.slice(from, from + 2), 16) / 255) ** 2.2;
  return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) > 0.18 ? "#000" : "#fff";
}

/** A badge in a value's colours. (By script: the page's policy forbids styles in attributes.) */
export function painted(look: Look): (box: HTMLElement | null) => void {
  return (box) => {
    box?.style.setProperty("background", look.colour);
    box?.style.setProperty("color", look.ink);
  };
}

/** Values in the order of a legend: steps from little to much, all others as they are. */
export function ordered(counts: [string, number][]): [string, number][] {
  const first = (word: string): number => Number(STEP.exec(word)?.[1] ?? Infinity);
  return counts.some(([word]) => STEP.test(word)) ? [...counts].sort(([one], [other]) => first(one) - first(other)) : counts;
}

/** A look for each word of a column; no two words have the same letter while there are letters. */
export function looks(words: readonly string[]): Look[] {
  const taken = new Set<string>();
  let next = 0;
  const steps = words.map((word) => Number(STEP.exec(word)?.[1] ?? NaN)).filter((first) => !Number.isNaN(first)).sort((one, other) => one - other);
  return words.map((word) => {
    const step = STEP.exec(word);
    if (step) {
      const place = steps.indexOf(Number(step[1]));
      const colour = RAMP[Math.round((place * (RAMP.length - 1)) / Math.max(steps.length - 1, 1))]!;
      return { colour, letter: String(place % 10), ink: ink(colour) };
    }
    const letter = [...(word || "–").toUpperCase(), ..."ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"].find((one) => !taken.has(one)) ?? "?";
    taken.add(letter);
    const colour = KNOWN[word] ?? OTHERS[next++ % OTHERS.length]!;
    return { colour, letter, ink: ink(colour) };
  });
}

/** A colour as a pixel of ImageData on this machine. */
export function pixel(colour: string, faint: boolean): number {
  const value = parseInt(colour.slice(1), 16);
  const [red, green, blue] = [value >> 16, (value >> 8) & 255, value & 255];
  return (((faint ? 40 : 255) << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
