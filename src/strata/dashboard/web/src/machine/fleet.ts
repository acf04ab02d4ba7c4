/** The whole machine as the service tells it: a position for each node, a column for the state and each variable. */
import { get, listen } from "../api";
import { Signal, signal } from "../signal";

type Runs = [number, number][];

interface Told {
  roster: string;
  names: string[];
  locations: string[];
  groups: Record<string, Runs>;
  columns: Record<string, { words: string[]; runs: number[] }>;
}

interface Changes {
  roster: string;
  columns: Record<string, Record<string, Runs>>;
}

export const STATE = "@state";
export const DOING = "@doing";

/** One value for each position. */
export class Column {
  readonly words: string[] = [];
  private readonly numbers = new Map<string, number>();

  constructor(readonly codes: Uint16Array) {}

  code(word: string): number {
    let code = this.numbers.get(word);
    if (code === undefined) {
      code = this.words.push(word) - 1;
      this.numbers.set(word, code);
    }
    return code;
  }

  word(position: number): string {
    return this.words[this.codes[position] ?? 0] ?? "";
  }

  fill(word: string, runs: Runs): void {
    const code = this.code(word);
    for (const [first, last] of runs) this.codes.fill(code, first, last + 1);
  }

  /** How many have each word, the most frequent first; words that nobody has are left out. */
  counts(): [string, number][] {
    const found = new Uint32Array(this.words.length);
    for (const code of this.codes) found[code]!++;
    return this.words
      .map((word, code): [string, number] => [word, found[code] ?? 0])
      .filter(([, count]) => count > 0)
      .sort((one, other) => other[1] - one[1] || (one[0] < other[0] ? -1 : 1));
  }

  copy(): Column {
    const made = new Column(this.codes.slice());
    for (const word of this.words) made.code(word);
    return made;
  }
}

/** The nodes and their columns at one time. */
export class Machine {
  readonly columns = new Map<string, Column>();
  private readonly positions: Map<string, number>;

  constructor(
    readonly roster: string,
    readonly names: string[],
    readonly locations: string[],
    readonly groups: Record<string, Runs>,
  ) {
    this.positions = new Map(names.map((name, position) => [name, position]));
  }

  static of(told: Told): Machine {
    const machine = new Machine(told.roster, told.names, told.locations, told.groups);
    for (const [name, { words, runs }] of Object.entries(told.columns)) {
      const column = machine.column(name);
      let at = 0;
      for (let place = 0; place < runs.length; place += 2) {
        const length = runs[place + 1]!;
        column.codes.fill(column.code(words[runs[place]!]!), at, at + length);
        at += length;
      }
    }
    return machine;
  }

  position(name: string): number {
    return this.positions.get(name) ?? -1;
  }

  column(name: string): Column {
    let column = this.columns.get(name);
    if (!column) this.columns.set(name, (column = new Column(new Uint16Array(this.names.length))));
    return column;
  }

  take(changes: Changes): void {
    for (const [name, words] of Object.entries(changes.columns))
      for (const [word, runs] of Object.entries(words)) this.column(name).fill(word, runs);
  }
}

/** The machine now, kept level with the service for as long as somebody is signed in. */
export class Live {
  readonly machine: Signal<Machine | null> = signal<Machine | null>(null);
  /** Why nothing new comes; empty: all is well. */
  readonly trouble = signal("");
  private gone = new AbortController();
  private early: Changes[] | null = [];

  start(): void {
    this.gone.abort();
    this.gone = new AbortController();
    void listen<Changes>(
      "/v1/machine/follow",
      {},
      {
        opened: () => void this.ask(),
        event: (changes) => this.heard(changes),
        lost: (why) => this.trouble.set(why),
      },
      this.gone.signal,
    );
  }

  stop(): void {
    this.gone.abort();
    this.machine.set(null);
  }

  /** All of it anew. What is heard meanwhile is taken in afterwards: a change twice is a change once. */
  private async ask(): Promise<void> {
    this.early = [];
    try {
      const machine = Machine.of(await get<Told>("/v1/machine", {}, this.gone.signal));
      const early = this.early;
      this.early = null;
      for (const changes of early) if (changes.roster === machine.roster) machine.take(changes);
      performance.mark("strata:machine");
      this.machine.set(machine);
      this.trouble.set("");
    } catch (error) {
      if (!this.gone.signal.aborted) this.trouble.set(error instanceof Error ? error.message : String(error));
    }
  }

  private heard(changes: Changes): void {
    if (this.early) {
      this.early.push(changes);
      return;
    }
    const machine = this.machine.value;
    if (!machine) return;
    if (machine.roster !== changes.roster) {
      void this.ask();
      return;
    }
    if (!Object.keys(changes.columns).length) return;
    performance.mark("strata:heard");
    machine.take(changes);
    this.machine.changed();
  }
}

export const live = new Live();
