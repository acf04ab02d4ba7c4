/** The machine as it was: from now, changes are undone one by one; forth they are done again. No requests meanwhile. */
import { get } from "../api";
import { Machine } from "./fleet";

interface Change {
  time: number;
  variable: string;
  old: string;
  new: string;
  cause: string;
  positions: [number, number][];
}

interface History {
  roster: string;
  since: number;
  changes: Change[];
}

export class Replay {
  /** How many of the changes are in force. */
  private done: number;
  private readonly machine: Machine;

  private constructor(
    now: Machine,
    private readonly history: History,
    readonly until: number,
  ) {
    this.machine = new Machine(now.roster, now.names, now.locations, now.groups);
    for (const [name, column] of now.columns) if (!name.startsWith("@")) this.machine.columns.set(name, column.copy());
    this.done = history.changes.length;
  }

  /** From `hours` ago until now. Undefined: nodes came or went meanwhile, ask again. */
  static async of(now: Machine, hours: number): Promise<Replay | undefined> {
    const until = Date.now() / 1000;
    const history = await get<History>("/v1/machine/history", { since: until - hours * 3600 });
    return history.roster === now.roster ? new Replay(now, history, until) : undefined;
  }

  get since(): number {
    return this.history.since;
  }

  /** How many changes there are, by time: where something happened. */
  get length(): number {
    return this.history.changes.length;
  }

  at(time: number): Machine {
    const { changes } = this.history;
    while (this.done > 0 && changes[this.done - 1]!.time > time) {
      const change = changes[--this.done]!;
      this.machine.column(change.variable).fill(change.old, change.positions);
    }
    while (this.done < changes.length && changes[this.done]!.time <= time) {
      const change = changes[this.done++]!;
      this.machine.column(change.variable).fill(change.new, change.positions);
    }
    return this.machine;
  }
}
